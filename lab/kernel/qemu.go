package kernel

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

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
