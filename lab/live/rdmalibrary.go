package live

import (
	"debug/elf"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
)

// kernelRDMALibraries open RDMA devices of the kernel. UCX and libfabric, which work
// without such a device, load them at run time.
var kernelRDMALibraries = []string{"libibverbs.so", "librdmacm.so", "libibumad.so"}

// KernelRDMALibrary returns the first library that a program is linked with and that opens
// RDMA devices of the kernel; empty if there is none, or the file is not an ELF file.
func KernelRDMALibrary(path string) string {
	f, err := cmdline.OpenFile(path)
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
