package kernel

import (
	"errors"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/netns"
)

func TestQEMUArgs(t *testing.T) {
	c := must.Get(Config{
		Image: &Image{Kernel: "/k", SIW: true}, Devices: []Device{RXE, SIW}, MTU: 9000, KernelArgs: "slub_debug=F",
	}.withDefaults())(t)
	const nic = ",romfile=,csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ufo=off,host_tso4=off,host_tso6=off,host_ufo=off"
	want := strings.Join([]string{
		"-M", "q35", "-accel", "tcg,thread=multi", "-cpu", "max", "-m", "512", "-smp", "1",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", "/k", "-initrd", "/i", "-append",
		"console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr random.trust_cpu=on tsc=reliable no_timer_check " +
			"rdinit=/fabrictest-kernel-guest fabrictest.id=2 fabrictest.mtu=9000 fabrictest.devices=rxe,siw slub_debug=F",
		"-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console",
		"-netdev", "tap,id=wire,ifname=wire2,script=no,downscript=no", "-device", "virtio-net-pci,netdev=wire,mac=52:54:00:77:00:12" + nic,
		"-netdev", "tap,id=control,ifname=control2,script=no,downscript=no", "-device", "virtio-net-pci,netdev=control,mac=52:54:00:78:00:12" + nic,
	}, "\n")
	if got := strings.Join(qemuArgs(c, 2, TCG, "/i"), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := strings.Join(qemuArgs(c, 1, KVM, "/i"), " "); !strings.Contains(got, "-accel kvm -cpu host ") {
		t.Errorf("with KVM: %s", got)
	}
	c.ICount = true
	if got := strings.Join(qemuArgs(c, 1, TCG, "/i"), " "); !strings.Contains(got, "-accel tcg -cpu max") || !strings.HasSuffix(got, " -icount shift=0") {
		t.Errorf("counted: %s", got)
	}
}

func TestConsoleParsesLines(t *testing.T) {
	c := newConsole()
	for _, piece := range []string{"[ 0.1] fabrictest-gu", "est: ready aft", "er 3.2 s", "\r"} {
		c.add([]byte(piece))
		select {
		case <-c.ready:
			t.Fatalf("ready after %q", piece)
		default:
		}
	}
	c.add([]byte("\n[ 9.1] Kernel panic - not sy"))
	<-c.ready
	if got := c.panicLine(); got != "" {
		t.Errorf("an incomplete line was a panic: %q", got)
	}
	c.add([]byte("ncing: Fatal exception in interrupt\n[ 9.2] ---[ end ]---\n"))
	if got := c.panicLine(); got != "Kernel panic - not syncing: Fatal exception in interrupt" {
		t.Errorf("the panic is %q", got)
	}
	if got := c.tail(1); got != "[ 9.2] ---[ end ]---" {
		t.Errorf("the last line is %q", got)
	}
	c.add([]byte(FailedMark + "no siw\n" + FailedMark + "no more\n"))
	if why := <-c.failed; why != "no siw" {
		t.Errorf("failed: %q", why)
	}
}

func TestConsoleIsBounded(t *testing.T) {
	c := newConsole()
	r, w := io.Pipe()
	go func() {
		line := strings.Repeat("x", 9000)
		for range 200 {
			io.WriteString(w, line)
		}
		io.WriteString(w, "\nlast\n")
		w.Close()
	}()
	c.copyFrom(r, nil)
	if text, _ := c.since(0); len(text) > consoleLimit || !strings.HasSuffix(text, "\nlast\n") || len(c.line) > 16<<10 {
		t.Errorf("%d octets kept, and a line of %d", len(text), len(c.line))
	}
}

func TestCheckProgram(t *testing.T) {
	script := t.TempDir() + "/script"
	must.Do(t, os.WriteFile(script, []byte("#!/bin/sh\n"), 0o755))
	if err := checkProgram(script); err == nil || !strings.Contains(err.Error(), "guests cannot run "+script) {
		t.Errorf("a script: %v", err)
	}
	for symbol, want := range map[string]int{"GLIBC_2.34": 34, "GLIBC_2.2.5": 2, "GLIBC_2.38": 38} {
		if got, ok := libCVersion(symbol); !ok || got != want {
			t.Errorf("%s: %d, %v", symbol, got, ok)
		}
	}
	if _, ok := libCVersion("GLIBC_PRIVATE"); ok {
		t.Error("a private symbol has a version")
	}
}

const crash = `[    1.0] fabrictest-guest: ready after 1.0 s
[   12.345678] BUG: kernel NULL pointer dereference, address: 0000000000000008
[   12.345679] #PF: supervisor read access in kernel mode
[   12.345680][   T66] Oops: 0000 [#1] PREEMPT SMP
[   12.345681] RIP: 0010:rxe_completer+0x1/0x2 [rdma_rxe]
[   12.345690] Kernel panic - not syncing: Fatal exception in interrupt
`

func TestKernelErrors(t *testing.T) {
	want := []string{
		"BUG: kernel NULL pointer dereference, address: 0000000000000008", "Oops: 0000 [#1] PREEMPT SMP",
		"Kernel panic - not syncing: Fatal exception in interrupt",
	}
	if got := Errors(crash); !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	for _, quiet := range []string{"", "[    3.1] rdma_rxe: loaded\n", "[    3.2] WARNING: CPU: 0 PID: 1 at drivers/x.c:1\n"} {
		if got := Errors(quiet); got != nil {
			t.Errorf("%q has the errors %q", quiet, got)
		}
	}
}

func TestKernelErrorReportStartsAtFirstError(t *testing.T) {
	got := ErrorReport(crash, 3)
	if !strings.HasPrefix(got, "[   12.345678] BUG:") || !strings.HasSuffix(got, "PREEMPT SMP") {
		t.Errorf("got %q", got)
	}
	if got := ErrorReport("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("without an error: %q", got)
	}
}

func TestConsoleSince(t *testing.T) {
	c := newConsole()
	c.add([]byte("one\r\n"))
	text, at := c.since(0)
	if text != "one\n" || at != 4 {
		t.Errorf("%q up to %d", text, at)
	}
	c.add([]byte("two\n"))
	if text, _ := c.since(at); text != "two\n" {
		t.Errorf("then %q", text)
	}
	c.add([]byte(strings.Repeat("x", consoleLimit+10)))
	if text, at := c.since(at); len(text) != consoleLimit || at != int64(8+consoleLimit+10) {
		t.Errorf("after an overflow: %d up to %d", len(text), at)
	}
	if text, _ := c.since(1 << 40); text != "" {
		t.Errorf("after the end: %d octets", len(text))
	}
}

// Without a direction, packets are impaired both ways.
func TestParseImpairmentImpairsBothWays(t *testing.T) {
	for words, want := range map[string]struct{ out, in int }{
		"loss=5%": {1, 1}, "loss=5% way=out": {1, 0}, "way=in delay=1ms": {0, 1}, "clean": {0, 0},
	} {
		m, err := ParseImpairment("guest 1", strings.Fields(words))
		if err != nil || len(m.Out) != want.out || len(m.In) != want.in {
			t.Errorf("%s: %+v, %v", words, m, err)
		}
	}
	m, err := ParseImpairFlag("loss=5% duplicate=1%")
	if err != nil || m.Out[0].LossPPM != 50_000 || m.In[0].DuplicatePPM != 10_000 {
		t.Errorf("%+v, %v", m, err)
	}
}

// Capabilities name what guests lack, with the command that installs it.
func TestCapabilitiesNameInstallCommand(t *testing.T) {
	empty := ImageCache{Dir: t.TempDir()}
	noQEMU := &MissingError{Missing: []string{"qemu-system-x86_64"}, Purpose: "virtual machines", Install: "apt-get install qemu-system-x86"}
	for _, c := range []struct {
		why          error
		reason, cure string
	}{
		{noQEMU, "missing: qemu-system-x86_64", "apt-get install qemu-system-x86"},
		{&netns.UnavailableError{Reason: "users may not", Cure: "as root: sysctl", Err: errors.New("EPERM")}, "users may not", "as root: sysctl"},
		{errors.New("/dev/net/tun cannot be opened"), "/dev/net/tun cannot be opened", ""},
	} {
		if got := kernelGuests(empty, c.why); got.State != netns.No || got.Reason != c.reason || got.Cure != c.cure {
			t.Errorf("%v: %+v", c.why, got)
		}
	}
	if runtime.GOOS != "linux" {
		return
	}
	t.Setenv("PATH", t.TempDir()) // no programs to build an image
	if got := kernelGuests(empty, nil); got.State != netns.No || !strings.Contains(got.Reason, "apt-get") || !strings.Contains(got.Cure, "apt-get install") {
		t.Errorf("without programs to build an image: %+v", got)
	}
	if got := agentLibrary(false); got.State != netns.No || !strings.Contains(got.Cure, "-tags ibverbs") {
		t.Errorf("without libibverbs: %+v", got)
	}
}
