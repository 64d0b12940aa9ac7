// SPDX-License-Identifier: Apache-2.0

// Package enrich finds out what events alone do not say: the host's name and id, and what is to be told of a process. What is
// kept is bounded.
package enrich

import (
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Host is the machine that the records come from. A field that cannot be known is empty.
type Host struct {
	Name string // of the UTS namespace of the host's process 1
	ID   string // its machine id, 32 hexadecimal digits
}

// The first namespaces of a kernel have fixed inode numbers (PROC_PID_INIT_INO and PROC_UTS_INIT_INO in include/linux/proc_ns.h).
const (
	initialPIDNamespace = "pid:[4026531836]"
	initialUTSNamespace = "uts:[4026531838]"
)

// hostFinder is where the host is looked for.
type hostFinder struct {
	root     string // where the host's / is mounted; empty: this process sees it as /
	self     string // directory of this process in /proc
	proc     string // the /proc that shows the host's processes if root is empty
	hostname func() (string, error)
	local    string // / of this process
}

// FindHost finds the host's name and id. rootPath is where the host's / is mounted, for a collector in a container; empty: it is
// not.
//
// The kernel tells a process only the name of its own UTS namespace: /proc/sys/kernel/hostname too answers for the reader. So
// the name is this process's if it shares the namespace of the host's process 1, otherwise what the host's /etc/hostname says,
// otherwise unknown: a pod's name is never told as the host's.
func FindHost(rootPath string) Host {
	if rootPath != "" {
		rootPath = filepath.Clean(rootPath)
	}
	if rootPath == "/" {
		rootPath = ""
	}
	f := hostFinder{root: rootPath, self: "/proc/self", proc: "/proc", hostname: os.Hostname, local: "/"}
	return Host{Name: f.name(), ID: f.id()}
}

// seesHostProcesses says whether process 1 is the host's and not that of this process's container.
func (f *hostFinder) seesHostProcesses() bool {
	return f.root != "" || namespace(f.self, "pid") == initialPIDNamespace
}

// initProcess is the directory of the host's process 1.
func (f *hostFinder) initProcess() string {
	if f.root != "" {
		return filepath.Join(f.root, "proc", "1")
	}
	return filepath.Join(f.proc, "1")
}

func (f *hostFinder) name() string {
	own := namespace(f.self, "uts")
	if own == initialUTSNamespace || (own != "" && f.seesHostProcesses() && own == namespace(f.initProcess(), "uts")) {
		if name, err := f.hostname(); err == nil {
			return string(AppendText(nil, []byte(name), 255))
		}
	}
	static := ""
	switch {
	case f.root != "":
		static = filepath.Join(f.root, "etc/hostname")
	case f.seesHostProcesses():
		static = filepath.Join(f.initProcess(), "root/etc/hostname")
	}
	name := firstLine(static)
	if name == "localhost" || strings.HasPrefix(name, "localhost.") {
		return ""
	}
	return string(AppendText(nil, []byte(name), 255))
}

func (f *hostFinder) id() string {
	var root string
	switch {
	case f.root != "":
		root = f.root
	case !f.seesHostProcesses():
		return "" // the files in view are a container image's
	default:
		root = f.local
		if other := namespace(f.initProcess(), "mnt"); other != "" && other != namespace(f.self, "mnt") {
			root = filepath.Join(f.initProcess(), "root")
		}
	}
	for _, file := range []string{"etc/machine-id", "var/lib/dbus/machine-id"} {
		if id := firstLine(filepath.Join(root, file)); isMachineID(id) {
			return id
		}
	}
	return ""
}

// namespace is a process's namespace as the kernel names it (uts:[4026531838]); empty if it may not be seen.
func namespace(process, kind string) string {
	link, err := os.Readlink(filepath.Join(process, "ns", kind))
	if err != nil {
		return ""
	}
	return link
}

// isMachineID holds the rule of machine-id(5); the file may also be empty or say "uninitialized".
func isMachineID(id string) bool {
	return len(id) == 32 && strings.Trim(id, "0123456789abcdef") == "" && strings.Trim(id, "0") != ""
}

// firstLine is the first line of a small file without the space around it; empty if there is none.
func firstLine(path string) string {
	if path == "" {
		return ""
	}
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 4096))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(line)
}
