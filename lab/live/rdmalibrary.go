package live

import (
	"debug/elf"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/fabrictest/fabrictest/internal/regularfile"
)

// kernelRDMALibraries open RDMA devices of the kernel. UCX and libfabric, which work
// without such a device, load them at run time.
var kernelRDMALibraries = []string{"libibverbs.so", "librdmacm.so", "libibumad.so"}

// kernelRDMALibrary returns the first library that a program is linked with and that opens
// RDMA devices of the kernel; empty if there is none, or the file is not an ELF file.
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

// WarnOfKernelRDMA warns that a program is linked for RDMA devices of the kernel, which the
// hosts of a fabric do not have, and prints the alternatives as commands of calledAs.
func WarnOfKernelRDMA(w io.Writer, calledAs, program string) {
	path, err := exec.LookPath(program)
	if err != nil {
		return // starting the program reports it
	}
	library := kernelRDMALibrary(path)
	if library == "" {
		return
	}
	fmt.Fprintf(w, `fabrictest: %[1]s is linked with %[2]s, which needs RDMA devices of the kernel. The hosts of this fabric
have none: their NICs are emulated in user space, for programs over package verbs, as examples/hello.
To run %[1]s on RDMA devices in software:
  %[3]s lab up --rdma rxe      a fabric with the kernel's soft-RoCE (as root, where the kernel has rdma_rxe)
  %[3]s lab kernel up          guests with a kernel that has it, then '%[3]s lab kernel exec 1 -- %[1]s'
To measure emulated NICs: %[3]s perf quick
`, filepath.Base(program), library, calledAs)
}
