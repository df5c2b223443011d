package main

import (
	"runtime"
	"strings"
	"testing"
)

func TestInteropVerbsWrongCalls(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("kernel labs need Linux")
	}
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	for _, c := range []struct{ words, says string }{
		{"interop verbs", "--guest: name the device that the guest is to have: rxe, siw or siw-crc"},
		{"interop verbs --guest mlx5", "--guest mlx5: a kernel has rxe, siw or siw-crc"},
		{"interop verbs --guest rxe --loss 5", "loss=5: 5 is not a percentage"},
		{"interop verbs --guest rxe --connections -1", "--connections -1"},
		{"interop verbs writ --guest rxe", "no exchange matches \"writ\""},
		{"interop verbs ud-send --guest siw", "no exchange matches \"ud-send\""},
		{"interop verbs --guest rxe --impair los=5%", "los=5%: unknown key; did you mean loss?"},
		{"interop verbs --guest rxe --agent-program /no/such/program --impair delay=1ms", "/no/such/program"},
	} {
		code, _, stderr := call(t, strings.Fields(c.words)...)
		if code != exitUsage || !strings.Contains(stderr, c.says) {
			t.Errorf("%s: exit code %d, %q; want %q", c.words, code, stderr, c.says)
		}
	}
	code, stdout, _ := call(t, strings.Fields("interop verbs send/*/hand/ipv6 --list --guest rxe")...)
	if code != exitOK || !strings.Contains(stdout, "send/theirs/hand/ipv6/4097\n") || strings.Contains(stdout, "ipv4") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}
