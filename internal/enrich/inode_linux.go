// SPDX-License-Identifier: Apache-2.0

package enrich

import (
	"io/fs"
	"syscall"
)

// inode is a file's inode number; 0 if it has none.
func inode(info fs.FileInfo) uint64 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Ino
	}
	return 0
}

// isLeaf says whether a directory has no directories in it, so that there is no need to read it: cgroupfs counts one link for each,
// beside the two of the directory itself (kernfs_refresh_inode in fs/kernfs/inode.c, Linux 6.18).
func isLeaf(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && stat.Nlink == 2
}
