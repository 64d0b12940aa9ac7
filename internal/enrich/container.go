// SPDX-License-Identifier: Apache-2.0

package enrich

import "strings"

// Container is what a cgroup's path says. A field that it does not say is empty.
type Container struct {
	ID     string // 64 hexadecimal digits
	PodUID string // with dashes, as Kubernetes writes it; of a static pod the 32 digits of its configuration's hash
}

// containerOf reads a cgroup's path. Of nested containers the innermost counts, and of nested pods.
func containerOf(path string) Container {
	var c Container
	for rest := path; rest != ""; {
		slash := strings.LastIndexByte(rest, '/')
		part := rest[slash+1:]
		rest = rest[:max(slash, 0)]
		if c.ID == "" {
			c.ID = containerID(part)
		}
		if c.PodUID == "" {
			c.PodUID = podUID(part)
		}
	}
	return c
}

const idLength = 64

// containerID is the id in one part of a path: <id> (Docker, containerd, CRI-O and Kubernetes with cgroupfs), crio-<id> and
// libpod-<id> (the same of CRI-O and Podman), docker-<id>.scope, cri-containerd-<id>.scope, crio-<id>.scope, libpod-<id>.scope
// (systemd), and <slice>:<runtime>:<id> (containerd told to use systemd by one side only).
func containerID(part string) string {
	part = strings.TrimSuffix(part, ".scope")
	part = part[strings.LastIndexByte(part, ':')+1:]
	if len(part) < idLength {
		return ""
	}
	prefix, id := part[:len(part)-idLength], part[len(part)-idLength:]
	if !isHex(id) {
		return ""
	}
	// crio-conmon-<id>.scope and libpod-conmon-<id>.scope hold the monitor of a container, which is outside.
	if prefix != "" && (!strings.HasSuffix(prefix, "-") || strings.HasSuffix(prefix, "conmon-")) {
		return ""
	}
	return strings.Clone(id)
}

// podUID is the uid in one part of a path: pod<uid> (cgroupfs) or kubepods-burstable-pod<uid with underscores>.slice (systemd).
func podUID(part string) string {
	part, _, _ = strings.Cut(part, ":")
	part = strings.TrimSuffix(part, ".slice")
	uid, found := strings.CutPrefix(part, "pod")
	if !found {
		at := strings.LastIndex(part, "-pod")
		if at < 0 {
			return ""
		}
		uid = part[at+len("-pod"):]
	}
	const plain, dashed = 32, 36
	switch len(uid) {
	case plain:
		if isHex(uid) {
			return strings.Clone(uid)
		}
	case dashed:
		uid = strings.ReplaceAll(uid, "_", "-")
		groups := strings.Split(uid, "-")
		if len(groups) != 5 {
			return ""
		}
		for i, digits := range []int{8, 4, 4, 4, 12} {
			if len(groups[i]) != digits || !isHex(groups[i]) {
				return ""
			}
		}
		return strings.Clone(uid)
	}
	return ""
}

func isHex(s string) bool {
	for i := range len(s) {
		if (s[i] < '0' || s[i] > '9') && (s[i] < 'a' || s[i] > 'f') {
			return false
		}
	}
	return true
}
