package main

import (
	"strings"
	"testing"
)

func TestInteropVerbsListsExchanges(t *testing.T) {
	code, stdout, _ := call(t, strings.Fields("interop verbs send/*/hand/ipv6 --list --guest rxe")...)
	if code != exitOK || !strings.Contains(stdout, "send/theirs/hand/ipv6/4097\n") || strings.Contains(stdout, "ipv4") {
		t.Errorf("exit code %d, %s", code, stdout)
	}
}
