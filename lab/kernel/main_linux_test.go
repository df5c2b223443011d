package kernel

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
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

	"github.com/fabrictest/fabrictest/emu/impair"
	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/internal/testutil"
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
		exitWith(runFakeGuest(os.Getenv(fakeQEMU)))
	case os.Getenv(ownerRole) != "":
		exitWith(runLabUntilKilled(os.Getenv(ownerRole)))
	case os.Getenv(hereRole) != "":
		exitWith(testCurrentNamespace(os.Getenv(hereRole)))
	case os.Getenv(insiderRole) != "":
		exitWith(insideTest())
	case os.Getenv(reaperRole) != "":
		exitWith(runReaper())
	}
	testutil.SetParallel(8) // tests mostly wait for guests and links
	ns, err := netns.New()
	if err == nil {
		ns.Close()
		os.Exit(m.Run())
	}
	// Without root, the tests run in an own user and network namespace.
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

// fake writes a script that runs this binary as QEMU, with a guest of the given behaviour.
func fake(t *testing.T, behaviour string) string {
	t.Helper()
	self := must.Get(os.Executable())(t)
	script := filepath.Join(t.TempDir(), "qemu")
	text := fmt.Sprintf("#!/bin/sh\n%s=%s exec %s \"$@\"\n", fakeQEMU, behaviour, self)
	// A process that is forked while the file is written keeps it open for a moment, and execve of
	// a file that is open for writing fails.
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

// forever never returns. The runtime of a program without cgo reports a select without cases as a
// deadlock.
func forever() {
	for {
		time.Sleep(time.Hour)
	}
}

// runFakeGuest is a fake of QEMU with a guest: it prints the console of a guest, and serves at the
// guest's address, which it adds to the lab's namespace.
func runFakeGuest(behaviour string) error {
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
		fmt.Print(FailedMark + "make device siw0: no such thing\r\n")
		forever()
	case "hangs":
		forever()
	case "silent": // ready, but does not answer
		fmt.Print(ReadyMark + "0.1 s\r\n")
		forever()
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	a := ControlAddr(id).Addr()
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(32, 32)}}
	if err := netlink.AddrReplace(lo, addr); err != nil {
		return err
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(a, GuestPort).String())
	if err != nil {
		return err
	}
	s := &GuestServer{Devices: func(all []Device) error {
		if len(all) == 0 { // the request of a test
			fmt.Print("[    9.9] Kernel panic - not syncing: no devices\r\n")
			os.Exit(0)
		}
		return nil
	}}
	fmt.Print(ReadyMark + "0.1 s\r\n")
	return s.Serve(l)
}

// argument returns the value of an option of QEMU.
func argument(name string) string {
	for i, a := range os.Args[:len(os.Args)-1] {
		if a == name {
			return os.Args[i+1]
		}
	}
	return ""
}

// bootVariable enables tests with real guests, which take a minute, QEMU, and a built image.
const bootVariable = "FABRICTEST_KERNEL"

func TestRealGuests(t *testing.T) {
	if os.Getenv(bootVariable) != "1" {
		t.Skipf("no real guests are booted: set %s=1", bootVariable)
	}
	if err := Check(); err != nil {
		t.Skip("no real guests are booted: ", err)
	}
	dir := must.Get(DefaultImageDir())(t)
	for _, series := range AllSeries() {
		t.Run(string(series), func(t *testing.T) {
			img, err := ImageCache{Dir: dir}.Find(series, true)
			var missing *NotBuiltError
			if errors.As(err, &missing) {
				t.Skip("no real guests are booted: ", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			testRealGuest(t, img)
		})
	}
}

func testRealGuest(t *testing.T, img *Image) {
	l := up(t, Config{Image: img, Devices: []Device{RXE, SIW}, MTU: 4200})
	t.Logf("Linux %s is ready after %.1f s (%s)", img.Release, l.Status()[0].BootSecs, l.Accel)
	run := func(line, want string) {
		t.Helper()
		out, code, err := l.Output(t.Context(), 1, Shell(line))
		if err != nil || code != 0 || !strings.Contains(out, want) {
			t.Errorf("%s: code %d, %v\n%s\nwant %q", line, code, err, out, want)
		}
	}
	run("uname -r", img.Release+"\n")
	run("rdma link", "link rxe0/1 state ACTIVE")
	run("rdma link", "link siw0/1 state ACTIVE")
	run("ibv_devinfo -d rxe0", "active_mtu:\t\t4096")
	run("ip addr show eth0", "fd77::11/64")
	run("ib_send_bw --version; rping -h 2>&1; true", "rping -s")
	run("su user -c 'ulimit -l'", "unlimited")
	run("ping -c 1 10.77.0.1 && ping -c 1 fd77::1", "1 packets received")
	run("modprobe -a veth bridge tun sch_netem sch_tbf && grep -c veth /proc/modules", "1")

	// Through the switch: all packets are lost, then none, also not by the switch itself.
	for _, step := range []struct {
		m    Impairment
		want string
	}{
		{lossy(impair.PPM), "0 packets received"}, {Impairment{}, "3 packets received"}, {Impairment{In: []impair.Spec{{Delay: time.Millisecond}}}, "3 packets received"},
	} {
		must.Do(t, l.Impair(1, step.m))
		run("ping -c 3 -i 0.2 -W 1 10.77.0.1; true", step.want)
	}
	if link := l.Status()[0].Link; link.Sent.Lost < 3 || link.Received.Packets < 3 || link.Sent.Dropped+link.Received.Dropped != 0 {
		t.Errorf("the link is %+v", link)
	}
	must.Do(t, l.Impair(1, Impairment{}))

	// A program of rdma-core, with itself as the peer, needs libraries, a driver and a device.
	run("ibv_rc_pingpong -d rxe0 -g 1 -n 10 >/tmp/server 2>&1 & sleep 1; ibv_rc_pingpong -d rxe0 -g 1 -n 10 127.0.0.1", "10 iters")
	must.Do(t, l.SetDevices(t.Context(), 1, []Device{SIWCRC}))
	run("rdma link", "link siw0/1 state ACTIVE")
	run("timeout 20 rping -s -a 10.77.0.11 -C 3 >/tmp/server 2>&1 & sleep 1; timeout 20 rping -c -a 10.77.0.11 -C 3 -v", "ping data: rdma-ping-2")

	file := make([]byte, 3<<20)
	_, _ = rand.Read(file) // never fails
	must.Do(t, l.Put(t.Context(), 1, File{Path: "/root/file", Mode: 0o644, Size: int64(len(file)), Content: bytes.NewReader(file)}))
	run("sha256sum /root/file", fmt.Sprintf("%x", sha256.Sum256(file)))

	_, _, err := l.Output(t.Context(), 1, Shell("echo c >/proc/sysrq-trigger"))
	var e *GuestError
	if !errors.As(err, &e) || !e.Panic || !strings.Contains(e.Reason, "sysrq triggered crash") {
		t.Errorf("after a crash: %v", err)
	}
	began := time.Now()
	must.Do(t, l.Restart(t.Context(), 1))
	t.Logf("restarted in %.1f s", time.Since(began).Seconds())
	run("rdma link", "link rxe0/1 state ACTIVE")
}

func TestUpInCurrentNamespace(t *testing.T) {
	needLab(t)
	cmd := exec.Command("/proc/self/exe")
	out := new(strings.Builder)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), hereRole+"="+fake(t, "good")), out, out
	must.Do(t, netns.StartUnshared(cmd))
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if netns.IsUnshared() {
		return // without root the tests run in such a namespace
	}
	if l, err := UpInCurrentNamespace(t.Context(), fakeConfig(t, "good")); err == nil {
		t.Error("the wire is in the machine's network namespace", l.Down())
	}
	if bare, err := IsEmptyNamespace(); bare || err != nil {
		t.Errorf("IsEmptyNamespace of the machine's network: %v, %v", bare, err)
	}
}

// testCurrentNamespace is the process of TestUpInCurrentNamespace.
func testCurrentNamespace(qemu string) (err error) {
	ctx := context.Background()
	file := filepath.Join(filepath.Dir(qemu), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		return err
	}
	cfg := Config{QEMU: qemu, Image: &Image{Kernel: file, Archives: []string{file}}}
	if bare, err := IsEmptyNamespace(); !bare || err != nil {
		return fmt.Errorf("IsEmptyNamespace of a new namespace: %v, %w", bare, err)
	}
	l, err := UpInCurrentNamespace(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Down()) }()
	if _, err := net.InterfaceByName(JudgeDevice); err != nil {
		return err
	}
	if err := l.Restart(ctx, 1); err != nil {
		return err
	}
	conn, err := net.Dial("tcp", netip.AddrPortFrom(ControlAddr(1).Addr(), GuestPort).String())
	if err != nil {
		return fmt.Errorf("the guest does not answer in this namespace: %w", err)
	}
	conn.Close()
	if text, n, err := l.ConsoleSince(1, 0); !strings.Contains(text, ReadyMark) || n != int64(len(text)) || err != nil {
		return fmt.Errorf("it printed %q, %d octets, %w", text, n, err)
	}
	if _, _, err := l.ConsoleSince(2, 0); err == nil {
		return errors.New("guest 2 answers")
	}
	if other, err := UpInCurrentNamespace(ctx, cfg); err == nil || !strings.Contains(err.Error(), "must be empty") {
		return fmt.Errorf("a second lab in the namespace: %v, %w", other, err)
	}
	return nil
}
