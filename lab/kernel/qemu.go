package kernel

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

// offloads are all off, so that the wire carries what a cable would: no packet
// larger than its MTU, and checksums that are right.
const offloads = "csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off"

// kernelWords are for every guest: quiet and quick to boot; and a kernel in which
// something is wrong stops, so that nobody waits for it (QEMU ends with it).
const kernelWords = "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check"

// arguments are QEMU's for a guest. The archives are read from a descriptor.
func arguments(c Config, id int, accel Accel, initrd string) []string {
	processor, acceleration := "max", "tcg,thread=multi"
	var clock []string
	switch {
	case accel == KVM:
		processor, acceleration = "host", "kvm"
	case c.Instructions: // one thread: its instructions are counted together
		acceleration, clock = "tcg", []string{"-icount", "shift=0"}
	}
	o := guest.Options{ID: id, MTU: c.MTU, Devices: c.Devices}
	words := strings.TrimSpace(kernelWords + " " + o.CommandLine() + " " + c.Append)
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
			// Without a ROM to boot from: it is a file of another package.
			"-device", fmt.Sprintf("virtio-net-pci,netdev=%s,mac=%s,romfile=,%s", nic.name, nic.mac, offloads))
	}
	return append(args, clock...)
}
