package kernel

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/internal/must"
	"github.com/fabrictest/fabrictest/lab/kernel/guest"
)

func TestQEMUArgs(t *testing.T) {
	c := must.Get(Config{
		Image: &Image{Kernel: "/k", SIW: true}, Devices: []guest.Device{guest.RXE, guest.SIW}, MTU: 9000, KernelArgs: "slub_debug=F",
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
	if got := c.panicked(); got != "" {
		t.Errorf("half a line was a panic: %q", got)
	}
	c.add([]byte("ncing: Fatal exception in interrupt\n[ 9.2] ---[ end ]---\n"))
	if got := c.panicked(); got != "Kernel panic - not syncing: Fatal exception in interrupt" {
		t.Errorf("the panic is %q", got)
	}
	if got := c.tail(1); got != "[ 9.2] ---[ end ]---" {
		t.Errorf("the last line is %q", got)
	}
	c.add([]byte(guest.FailedMark + "no siw\n" + guest.FailedMark + "no more\n"))
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
	if text := c.all(); len(text) > consoleLimit || !strings.HasSuffix(text, "\nlast\n") || len(c.line) > 16<<10 {
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
