package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// chooseAccel selects KVM or TCG.
func chooseAccel(c Config) (Accel, error) {
	if c.Accel == TCG || c.ICount {
		return TCG, nil
	}
	err := kvmWorks()
	switch {
	case err == nil:
		return KVM, nil
	case c.Accel == KVM:
		return "", fmt.Errorf("no KVM: %w; leave it out, and processors are emulated", err)
	}
	return TCG, nil
}

// kvmWorks tries to create a virtual machine.
func kvmWorks() error {
	// Inside some virtual machines, KVM exists and only emulates, badly.
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return err
	}
	if !hasVirtualisation(info) {
		return errors.New("the processor has no virtualisation: neither vmx nor svm is among its flags")
	}
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	const apiVersion, createVM, theVersion = 0xAE00, 0xAE01, 12
	version, err := unix.IoctlRetInt(int(f.Fd()), apiVersion)
	if err != nil {
		return fmt.Errorf("/dev/kvm: %w", err)
	}
	if version != theVersion {
		return fmt.Errorf("/dev/kvm has version %d, want %d", version, theVersion)
	}
	vm, err := unix.IoctlRetInt(int(f.Fd()), createVM)
	if err != nil {
		return fmt.Errorf("/dev/kvm makes no machine: %w", err)
	}
	return unix.Close(vm)
}

func hasVirtualisation(cpuinfo []byte) bool {
	for line := range bytes.Lines(cpuinfo) {
		key, flags, _ := bytes.Cut(line, []byte(":"))
		if string(bytes.TrimSpace(key)) != "flags" {
			continue
		}
		for flag := range bytes.FieldsSeq(flags) {
			if string(flag) == "vmx" || string(flag) == "svm" {
				return true
			}
		}
	}
	return false
}
