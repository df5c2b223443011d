package kernel

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/internal/cmdline"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// guestLibC is the minor version of glibc in guests, which is that of Debian 12.
const guestLibC = 36 // 2.36

// checkProgram returns an error if a program is linked against a later glibc than
// that of guests.
func checkProgram(path string) error {
	if err := cmdline.CheckFile(path); err != nil {
		return fmt.Errorf("guests cannot run %s: %w", path, err)
	}
	f, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("guests cannot run %s: %w", path, err)
	}
	defer f.Close()
	if f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("guests cannot run %s: it is for %s, and they are x86-64", path, f.Machine)
	}
	needs, err := f.DynamicVersionNeeds()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, need := range needs {
		for _, v := range need.Needs {
			if n, ok := libCVersion(v.Dep); ok && n > guestLibC {
				return fmt.Errorf("guests cannot run %s: it was linked on a later system, and needs %s of %s, where they have GLIBC_2.%d: "+
					"build it with CGO_ENABLED=0", path, v.Dep, need.Name, guestLibC)
			}
		}
	}
	return nil
}

var libCSymbol = regexp.MustCompile(`^GLIBC_2\.(\d+)`)

// libCVersion returns the minor version N of a symbol version GLIBC_2.N.
func libCVersion(symbol string) (int, bool) {
	m := libCSymbol.FindStringSubmatch(symbol)
	if m == nil {
		return 0, false
	}
	n, err := strconv.Atoi(m[1])
	return n, err == nil
}

// writeInitrd writes the archives of the image, and one with the init program. It
// is not part of the image, which would have to be rebuilt with this program.
func writeInitrd(w io.Writer, archives []string, program string) error {
	for _, name := range archives {
		if err := copyFile(w, name); err != nil {
			return err
		}
	}
	f, info, err := openFile(program)
	if err != nil {
		return err
	}
	defer f.Close()
	a := NewArchive(w)
	a.AddFile(guest.InitPath, 0o755, info.Size(), f)
	return a.Close()
}

func copyFile(w io.Writer, name string) error {
	f, err := cmdline.OpenFile(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

// offloadOptions disables all offloads of virtio-net, so that packets have the MTU
// and valid checksums.
const offloadOptions = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off"

// kernelArgs are the kernel command line of every guest: quiet, fast to boot, and
// with a panic on an oops, at which QEMU exits.
const kernelArgs = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check"

// qemuArgs returns the arguments of QEMU for a guest.
func qemuArgs(c Config, id int, accel Accel, initrd string) []string {
	processor, acceleration := "max", "tcg,thread=multi"
	var clock []string
	switch {
	case accel == KVM:
		processor, acceleration = "host", "kvm"
	case c.ICount: // needs a single thread
		acceleration, clock = "tcg", []string{"-icount", "shift=0"}
	}
	o := guest.Options{ID: id, MTU: c.MTU, Devices: c.Devices}
	words := strings.TrimSpace(kernelArgs + " " + o.CommandLine() + " " + c.KernelArgs)
	args := []string{
		"-M", "q35", "-accel", acceleration, "-cpu", processor, "-m", strconv.Itoa(c.Memory), "-smp", strconv.Itoa(c.CPUs),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", c.Image.Kernel, "-initrd", initrd, "-append", words,
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
	}
	for _, nic := range []struct{ name, device, mac string }{
		{"wire", wirePort(id), guest.WireMAC(id)}, {"control", controlPort(id), guest.ControlMAC(id)},
	} {
		args = append(args,
			"-netdev", fmt.Sprintf("tap,id=%s,ifname=%s,script=no,downscript=no", nic.name, nic.device),
			// No boot ROM, which is in another Debian package.
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=,%s", nic.name, nic.mac, offloadOptions))
	}
	return append(args, clock...)
}
