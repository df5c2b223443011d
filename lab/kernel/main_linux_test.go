package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
	"github.com/fabrictest/fabrictest/netns"
)

// Roles of the test binary besides running tests.
const (
	fakeQEMU  = "FABRICTEST_FAKE_QEMU"  // a guest that behaves as the value says
	ownerRole = "FABRICTEST_KERNEL_LAB" // a process with a lab, of the QEMU that the value names

	insiderRole = "FABRICTEST_KERNEL_INSIDER" // a program on a lab's network
	hereRole    = "FABRICTEST_KERNEL_HERE"    // a process with a lab in its own network, of that QEMU
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == ServeCommand:
		exitWith(ServeMain())
	case len(os.Args) > 1 && os.Args[1] == ProgramCommand:
		code, err := ProgramMain()
		if err == nil {
			os.Exit(code)
		}
		exitWith(err)
	case os.Getenv(fakeQEMU) != "":
		exitWith(beGuest(os.Getenv(fakeQEMU)))
	case os.Getenv(ownerRole) != "":
		exitWith(runLabUntilKilled(os.Getenv(ownerRole)))
	case os.Getenv(hereRole) != "":
		exitWith(hereTest(os.Getenv(hereRole)))
	case os.Getenv(insiderRole) != "":
		exitWith(insideTest())
	}
	testutil.SetParallel(8) // guests and cables are waited for
	ns, err := netns.New()
	if err == nil {
		ns.Close()
		os.Exit(m.Run())
	}
	// An ordinary user runs the tests in an enclosure.
	if netns.Available() != nil || netns.IsUnshared() {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := netns.StartUnshared(cmd); err != nil {
		exitWith(err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		os.Exit(exit.ExitCode())
	}
	exitWith(err)
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// needLab skips the test if no lab is possible, with the reason.
func needLab(t *testing.T) {
	t.Helper()
	if err := netns.Available(); err != nil {
		t.Skip(err)
	}
	if err := checkTun(); err != nil {
		t.Skip(err)
	}
}

// fake is a script that is QEMU, with a guest that behaves in some way.
func fake(t *testing.T, behaviour string) string {
	t.Helper()
	self := must.Get(os.Executable())(t)
	script := filepath.Join(t.TempDir(), "qemu")
	text := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", fakeQEMU, behaviour, self)
	// A process that is started while the file is written has it open for a moment, and
	// what somebody may write to is not run.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	must.Do(t, os.WriteFile(script, []byte(text), 0o755))
	return script
}

// fakeConfig returns a lab with an image that only the fake QEMU can boot.
func fakeConfig(t *testing.T, behaviour string) Config {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"vmlinuz", "base.cpio"} {
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
	return Config{
		Image: &Image{
			Series: Linux612, Release: "6.12.0-fake", Kernel: filepath.Join(dir, "vmlinuz"), Archives: []string{filepath.Join(dir, "base.cpio")},
		},
		QEMU: fake(t, behaviour), BootTimeout: time.Minute,
	}
}

// forever never returns. A select without cases is a deadlock to the runtime of a program
// without cgo, which is what a machine without a C compiler builds.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// beGuest is a fake of QEMU with a guest: it prints what a guest would, and serves at
// the guest's address, which it gives to the lab's own namespace.
func beGuest(behaviour string) error {
	if initrd := argument("-initrd"); !strings.HasPrefix(initrd, "/proc/self/fd/") {
		return fmt.Errorf("no files to boot from: %s", initrd)
	} else if _, err := os.ReadFile(initrd); err != nil {
		return err
	}
	id := 0
	for word := range strings.FieldsSeq(argument("-append")) {
		fmt.Sscanf(word, "fabrictest.id=%d", &id)
	}
	fmt.Printf("[    0.1] Linux\r\n")
	switch behaviour {
	case "refuses":
		return errors.New("qemu-system-x86_64: could not set up host tap")
	case "panics":
		fmt.Print("[    0.2] BUG: kernel NULL pointer\r\n[    0.2] Kernel panic - not syncing: Fatal exception\r\n[    0.3] Kernel Offset: disabled\r\n")
		return nil
	case "fails":
		fmt.Print(guest.FailedMark + "make device siw0: no such thing\r\n")
		forever()
	case "hangs":
		forever()
	case "silent": // ready, and not there
		fmt.Print(guest.ReadyMark + "0.1 s\r\n")
		forever()
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	a := guest.Control(id).Addr()
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrReplace(lo, addr); err != nil {
		return err
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(a, guest.Port).String())
	if err != nil {
		return err
	}
	s := &guest.Server{Devices: func(all []guest.Device) error {
		if len(all) == 0 { // is how a test tells it to
			fmt.Print("[    9.9] Kernel panic - not syncing: no devices\r\n")
			os.Exit(0)
		}
		return nil
	}}
	fmt.Print(guest.ReadyMark + "0.1 s\r\n")
	return s.Serve(l)
}

// argument is the value of one of QEMU's options.
func argument(name string) string {
	for i, a := range os.Args[:len(os.Args)-1] {
		if a == name {
			return os.Args[i+1]
		}
	}
	return ""
}
