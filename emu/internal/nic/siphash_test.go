package nic

import "testing"

// The vector of the paper that defined SipHash, and one of another length.
func TestSipHashIsSipHash(t *testing.T) {
	var key [16]byte
	var in [8]byte
	for i := range key {
		key[i] = byte(i)
	}
	for i := range in {
		in[i] = byte(i)
	}
	if got := SipHash(&key, nil); got != 0x726fdb47dd0e0e31 {
		t.Errorf("of nothing: %#x", got)
	}
	if got := SipHash(&key, in[:]); got != 0x93f5f5799a932462 {
		t.Errorf("of eight octets: %#x", got)
	}
}
