// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const (
	hostID  = "0123456789abcdef0123456789abcdef"
	imageID = "fedcba9876543210fedcba9876543210"
)

// tree is a file system: files by name, and symbolic links by name.
type tree struct{ files, links map[string]string }

func (f tree) make(t *testing.T) string {
	root := t.TempDir()
	for name, content := range f.files {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
	}
	for name, target := range f.links {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.Symlink(target, path))
	}
	return root
}

func TestHostIsFoundAndAPodIsNotTakenForIt(t *testing.T) {
	const podPID, podUTS, hostMount, podMount = "pid:[4026532001]", "uts:[4026532002]", "mnt:[4026531832]", "mnt:[4026532003]"
	for _, test := range []struct {
		name  string
		root  bool // the host's / is mounted at host/
		links map[string]string
		files map[string]string
		want  Host
	}{
		{
			name: "on the host",
			links: map[string]string{"proc/self/ns/pid": initialPIDNamespace, "proc/self/ns/uts": initialUTSNamespace,
				"proc/self/ns/mnt": hostMount, "proc/1/ns/mnt": hostMount},
			files: map[string]string{"etc/machine-id": hostID + "\n"},
			want:  Host{"own", hostID},
		},
		{
			name:  "on the host without the right to see process 1",
			links: map[string]string{"proc/self/ns/pid": initialPIDNamespace, "proc/self/ns/uts": initialUTSNamespace},
			files: map[string]string{"etc/machine-id": "uninitialized\n", "var/lib/dbus/machine-id": hostID},
			want:  Host{"own", hostID},
		},
		{
			name: "in a pod with hostPID",
			links: map[string]string{"proc/self/ns/pid": initialPIDNamespace, "proc/self/ns/uts": podUTS,
				"proc/1/ns/uts": initialUTSNamespace, "proc/self/ns/mnt": podMount, "proc/1/ns/mnt": hostMount},
			files: map[string]string{"etc/machine-id": imageID, "etc/hostname": "pod",
				"proc/1/root/etc/machine-id": hostID, "proc/1/root/etc/hostname": "node-7\n"},
			want: Host{"node-7", hostID},
		},
		{
			name: "in a pod with the host's / mounted",
			root: true,
			links: map[string]string{"proc/self/ns/pid": podPID, "proc/self/ns/uts": podUTS,
				"host/proc/1/ns/uts": initialUTSNamespace},
			files: map[string]string{"etc/machine-id": imageID, "host/etc/machine-id": hostID, "host/etc/hostname": "node-7\n"},
			want:  Host{"node-7", hostID},
		},
		{
			name: "on a host whose first process is not in the first namespace",
			root: true,
			links: map[string]string{"proc/self/ns/pid": podPID, "proc/self/ns/uts": podUTS,
				"host/proc/1/ns/uts": podUTS},
			files: map[string]string{"host/etc/hostname": "old-name\n"},
			want:  Host{"own", ""},
		},
		{
			name: "in a pod that sees nothing of the host",
			links: map[string]string{"proc/self/ns/pid": podPID, "proc/self/ns/uts": podUTS, "proc/1/ns/uts": podUTS,
				"proc/self/ns/mnt": podMount, "proc/1/ns/mnt": podMount},
			files: map[string]string{"etc/machine-id": imageID, "etc/hostname": "pod", "proc/1/root/etc/hostname": "pod"},
			want:  Host{},
		},
		{
			name:  "in a pod with hostNetwork, which shares the host's name",
			links: map[string]string{"proc/self/ns/pid": podPID, "proc/self/ns/uts": initialUTSNamespace},
			files: map[string]string{"etc/machine-id": imageID},
			want:  Host{"own", ""},
		},
		{
			name:  "a host that has no name of its own",
			root:  true,
			links: map[string]string{"proc/self/ns/uts": podUTS},
			files: map[string]string{"host/etc/hostname": "localhost.localdomain\n", "host/etc/machine-id": "short"},
			want:  Host{},
		},
		{
			name:  "a hostile file",
			root:  true,
			links: map[string]string{"proc/self/ns/uts": podUTS},
			files: map[string]string{"host/etc/hostname": "a\x1b[2J\xff\nb"},
			want:  Host{"a?[2J?", ""},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := tree{test.files, test.links}.make(t)
			finder := hostFinder{self: filepath.Join(root, "proc/self"), proc: filepath.Join(root, "proc"), local: root,
				hostname: func() (string, error) { return "own", nil }}
			if test.root {
				finder.root = filepath.Join(root, "host")
			}
			assert.Equal(t, test.want, Host{Name: finder.name(), ID: finder.id()})
		})
	}
}

func TestHostOfThisMachineIsItsOwnNameInTheFirstNamespace(t *testing.T) {
	if namespace("/proc/self", "uts") != initialUTSNamespace {
		t.Skip("this test runs in a UTS namespace of its own")
	}
	name, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, name, FindHost("").Name)
	assert.Equal(t, FindHost(""), FindHost("/"))
}
