package main

import (
	"debug/elf"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// kernelRDMALibraries are those that open RDMA devices of the kernel. Libraries that can
// do without such a device, as UCX and libfabric, load them by themselves.
var kernelRDMALibraries = []string{"libibverbs.so", "librdmacm.so", "libibumad.so"}

// warnOfKernelRDMA says that a program looks for RDMA devices of the kernel, which the
// hosts of a fabric do not have, and what to do instead. It runs all the same: it may do
// without.
func warnOfKernelRDMA(w io.Writer, calledAs, program string) {
	path, err := exec.LookPath(program)
	if err != nil {
		return // for those who run it to complain of
	}
	library := kernelRDMALibrary(path)
	if library == "" {
		return
	}
	name := filepath.Base(program)
	fmt.Fprintf(w, `fabrictest: %[1]s is linked with %[2]s, which needs RDMA devices of the kernel. The hosts of this fabric
have none: their NICs are emulated in user space, for programs over package verbs, as examples/hello.
To run %[1]s on RDMA devices in software:
  %[3]s up --rdma rxe          a fabric with the kernel's soft-RoCE (as root, where the kernel has rdma_rxe)
  %[3]s lab kernel up          guests with a kernel that has it, then '%[3]s lab kernel exec 1 -- %[1]s'
To measure emulated NICs: %[3]s perf quick
`, name, library, calledAs)
}

// kernelRDMALibrary is the first library of a program that opens RDMA devices of the
// kernel; empty if it has none, or is no ELF file.
func kernelRDMALibrary(path string) string {
	f, err := regularfile.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	file, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	needed, _ := file.ImportedLibraries() // none in a static program
	for _, name := range needed {
		for _, known := range kernelRDMALibraries {
			if strings.HasPrefix(name, known) {
				return name
			}
		}
	}
	return ""
}
