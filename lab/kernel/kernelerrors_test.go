package kernel

import (
	"slices"
	"strings"
	"testing"
)

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
			t.Errorf("%q alarms by %q", quiet, got)
		}
	}
}

func TestKernelErrorReportStartsAtFirstError(t *testing.T) {
	got := ErrorReport(crash, 3)
	if !strings.HasPrefix(got, "[   12.345678] BUG:") || !strings.HasSuffix(got, "PREEMPT SMP") {
		t.Errorf("got %q", got)
	}
	if got := ErrorReport("a\nb\nc\n", 2); got != "b\nc" {
		t.Errorf("of no alarm: %q", got)
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
		t.Errorf("what is kept of more: %d up to %d", len(text), at)
	}
	if text, _ := c.since(1 << 40); text != "" {
		t.Errorf("of what is not printed yet: %d octets", len(text))
	}
}
