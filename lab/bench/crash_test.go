package bench

import (
	"runtime"
	"strings"
	"testing"

	"github.com/fabrictest/fabrictest/conformance"
	"github.com/fabrictest/fabrictest/emu/softroce/wire"
	"github.com/fabrictest/fabrictest/verbs"
)

// crash panics in code of a device.
func crash() {
	wire.ICRC{}.Seal(0, make([]byte, wire.ICRCLen)) // too short for a packet
}

func TestCrashErrors(t *testing.T) {
	for name, c := range map[string]struct {
		body     func(*conformance.Bench) error
		violates bool
		want     string
	}{
		"device, called by the case": {func(*conformance.Bench) error { crash(); return nil }, true, "it crashed: runtime error: cannot convert slice"},
		"device, called by a task": {
			func(b *conformance.Bench) error {
				return b.Go("task", func() error { crash(); return nil }).Wait(verbs.Forever)
			}, true, "softroce/wire.ICRC.Sum",
		},
		"device, in an event": {
			func(b *conformance.Bench) error {
				b.Runtime.(*simWorld).AfterFunc(5, crash)
				_, err := b.Wire.Recv(verbs.Forever)
				return err
			}, true, "a device that survives",
		},
		"the case": {
			func(*conformance.Bench) error { var b *conformance.Bench; return b.SetLink(true) }, false, "TestCrashErrors",
		},
		"the case, in an event": {
			func(b *conformance.Bench) error {
				b.Runtime.(*simWorld).AfterFunc(5, func() { panic("of the case") })
				_, err := b.Wire.Recv(verbs.Forever)
				return err
			}, false, "of the case",
		},
		"case, verb call in an event": {
			func(b *conformance.Bench) error {
				b.Runtime.(*simWorld).AfterFunc(5, func() { _, _ = b.Device.WaitAsync(verbs.Forever) })
				_, err := b.Wire.Recv(verbs.Forever)
				return err
			}, false, "outside of a program",
		},
		"device, then the case in a defer": {
			func(*conformance.Bench) error { defer func() { panic("of the case") }(); crash(); return nil }, true, "softroce/wire",
		},
	} {
		err := runSimulated(t, "softroce", conformance.BenchSpec{}, c.body)
		if err == nil || conformance.IsViolation(err) != c.violates || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPanickingFunction(t *testing.T) {
	for stack, want := range map[string]string{
		"goroutine 1 [running]:\nruntime/debug.Stack()\n\tx\npanic({0x1, 0x2})\n\tx\nslices.Insert[...](...)\n\tx\n" +
			"github.com/fabrictest/fabrictest/emu/softroce/engine.(*NIC).Input(0xc, 0xd)\n\tx\nmain.main()\n": "github.com/fabrictest/fabrictest/emu/softroce/engine.(*NIC).Input",
		"goroutine 1 [running]:\nmain.main()\n": "",
		"":                                      "",
	} {
		if got := panickingFunction([]byte(stack)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestGoexitBecomesError(t *testing.T) {
	err := <-goCase(func() error { runtime.Goexit(); return nil })
	if err == nil || !strings.Contains(err.Error(), "runtime.Goexit") {
		t.Errorf("%v", err)
	}
}
