// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	idA     = "3f4bb4ac6d1c7b8e0f5a9c2d1e3b4a5968778695a4b3c2d1e0f1a2b3c4d5e6f7"
	idB     = "b0c1d2e3f4a5968778695a4b3c2d1e0f1a2b3c4d5e6f708192a3b4c5d6e7f809"
	uid     = "8dbc5577-d0e2-4706-8787-57d52c03ddf2"
	hashUID = "6a2d8f0c5ec3e8b9c3e6a0b3b1c0c6f1"
)

// layouts are the files of testdata/cgroup: texts of /proc/PID/cgroup as the runtimes make them, the container inside always idA.
var layouts = map[string]Container{
	"containerd-cgroupfs-v2":                   {idA, ""},
	"containerd-colon-v1":                      {idA, uid},
	"docker-cgroupfs-v1":                       {idA, ""},
	"docker-cgroupfs-v2":                       {idA, ""},
	"docker-in-docker-v2":                      {idA, ""},
	"docker-systemd-hybrid":                    {idA, ""},
	"docker-systemd-init-v2":                   {idA, ""},
	"docker-systemd-inside-v2":                 {idA, ""},
	"docker-systemd-v2":                        {idA, ""},
	"kind-cgroupfs-v1":                         {idA, uid},
	"kind-v2":                                  {idA, uid},
	"kubernetes-containerd-cgroupfs-v1":        {idA, uid},
	"kubernetes-containerd-systemd-v2":         {idA, uid},
	"kubernetes-crio-cgroupfs-v1":              {idA, uid},
	"kubernetes-crio-monitor-v2":               {"", uid},
	"kubernetes-crio-systemd-v2":               {idA, uid},
	"kubernetes-docker-systemd-v1":             {idA, uid},
	"kubernetes-guaranteed-cgroupfs-v2":        {idA, uid},
	"kubernetes-guaranteed-systemd-v2":         {idA, uid},
	"kubernetes-pod-alone-v2":                  {"", uid},
	"kubernetes-static-pod-v2":                 {idA, hashUID},
	"nerdctl-v2":                               {idA, ""},
	"other-container-seen-from-a-container-v2": {idA, uid},
	"podman-cgroupfs-v1":                       {idA, ""},
	"podman-itself-v2":                         {},
	"podman-monitor-v2":                        {},
	"podman-pod-v2":                            {idA, ""},
	"podman-rootless-v2":                       {idA, ""},
	"podman-systemd-v2":                        {idA, ""},
	"removed-v2":                               {idA, ""},
	"root-v2":                                  {},
	"sibling-seen-from-a-container-v2":         {idA, ""},
	"systemd-service-v2":                       {},
	"systemd-session-hybrid":                   {},
}

func TestContainerIsFoundInTheLayoutOfEachRuntime(t *testing.T) {
	files, err := os.ReadDir("testdata/cgroup")
	require.NoError(t, err)
	assert.Len(t, files, len(layouts))
	for _, file := range files {
		t.Run(file.Name(), func(t *testing.T) {
			want, listed := layouts[file.Name()]
			require.True(t, listed)
			text, err := os.ReadFile(filepath.Join("testdata/cgroup", file.Name()))
			require.NoError(t, err)
			// The tree is not in view: the text alone must do.
			assert.Equal(t, want, containerOf((&cgroups{}).pathIn(text)))
		})
	}
}

func TestWhatIsNoContainerIsNotTakenForOne(t *testing.T) {
	for name, path := range map[string]string{
		"too short":              "/docker/" + idA[1:],
		"too long":               "/docker/a" + idA,
		"upper case":             "/docker/" + strings.ToUpper(idA),
		"not hexadecimal":        "/docker/" + strings.Replace(idA, "a", "g", 1),
		"a service named by it":  "/system.slice/" + idA + ".service",
		"an underscore before":   "/machine.slice/machine-libpod_pod_" + idA + ".slice",
		"a pod without dashes":   "/kubepods/pod" + strings.ReplaceAll(uid, "-", "x"),
		"a pod with moved dashs": "/kubepods/pod8dbc557-7d0e2-4706-8787-57d52c03ddf2",
		"something like a pod":   "/kubepods-podman.slice/podcast",
		"nothing":                "",
	} {
		t.Run(name, func(t *testing.T) { assert.Zero(t, containerOf(path)) })
	}
}

func TestCgroupTextIsReadAsFarAsItIsWellFormed(t *testing.T) {
	for _, test := range []struct{ name, controller, text, want string }{
		{"torn", "", "0::/docker/" + idA[:63], ""},
		{"torn after a line", "memory", "4:memory:/a\n3:cpu", "/a"},
		{"binary", "", "\x00\xff\x00\n\n:\n::\n0:\n", ""},
		{"a colon in the path", "", "0::/a:b:c\n", "/a:b:c"},
		{"no absolute path", "", "0::a\n", ""},
		{"one of several controllers", "memory", "5:cpu,memory,pids:/x\n0::/\n", "/x"},
		{"a longer name", "memory", "5:memory2,xmemory:/x\n", ""},
		{"v2's line is not one of v1", "memory", "0::/x\n", ""},
		{"a named hierarchy is not v2's", "", "1:name=systemd:/y\n2::/z\n0::/x\n", "/x"},
		{"empty", "memory", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			assert.Equal(t, test.want, (&cgroups{dir: "/x", controller: test.controller}).pathIn([]byte(test.text)))
		})
	}
}

func FuzzCgroupText(f *testing.F) {
	files, err := os.ReadDir("testdata/cgroup")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(filepath.Join("testdata/cgroup", file.Name()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, controller := range []string{"", "memory"} {
			path := (&cgroups{dir: "/x", controller: controller}).pathIn(text)
			if path != "" && path[0] != '/' {
				t.Fatalf("path is %q", path)
			}
			c := containerOf(path)
			if c.ID != "" && (len(c.ID) != 64 || !isHex(c.ID)) {
				t.Fatalf("id is %q", c.ID)
			}
			if c.PodUID != "" && !isHex(strings.ReplaceAll(c.PodUID, "-", "")) {
				t.Fatalf("uid is %q", c.PodUID)
			}
		}
	})
}
