// SPDX-License-Identifier: Apache-2.0

//go:build !linux || !(amd64 || arm64)

package ebpfnetreceiver

// hostKernel has no way to open a source.
func hostKernel() kernel { return kernel{} }
