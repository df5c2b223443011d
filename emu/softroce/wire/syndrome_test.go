package wire

import (
	"math"
	"testing"
	"time"
)

func TestSyndromeKindsAndValues(t *testing.T) {
	for _, tc := range []struct {
		made   Syndrome
		wire   uint8
		kind   SyndromeKind
		value  uint8
		string string
	}{
		{Ack(0), 0x00, SyndromeAck, 0, "ACK credit 0"},
		{Ack(CreditUnlimited), 0x1f, SyndromeAck, 31, "ACK credit 31"},
		{Ack(0xff), 0x1f, SyndromeAck, 31, "ACK credit 31"},
		{RNRNak(12), 0x2c, SyndromeRNR, 12, "RNR NAK 640µs"},
		{RNRNak(0), 0x20, SyndromeRNR, 0, "RNR NAK 655.36ms"},
		{RNRNak(0xe1), 0x21, SyndromeRNR, 1, "RNR NAK 10µs"},
		{Nak(NakPSNSequence), 0x60, SyndromeNak, 0, "NAK PSN sequence error"},
		{Nak(NakInvalidRequest), 0x61, SyndromeNak, 1, "NAK invalid request"},
		{Nak(NakRemoteAccess), 0x62, SyndromeNak, 2, "NAK remote access error"},
		{Nak(NakRemoteOperational), 0x63, SyndromeNak, 3, "NAK remote operational error"},
		{Nak(NakInvalidRD), 0x64, SyndromeNak, 4, "NAK invalid RD request"},
		{Nak(31), 0x7f, SyndromeNak, 31, "NAK reserved code 31"},
		{0x45, 0x45, SyndromeReserved, 5, "reserved syndrome 0x45"},
		{0x9f, 0x9f, SyndromeReserved, 31, "reserved syndrome 0x9f"},
		{0xe1, 0xe1, SyndromeReserved, 1, "reserved syndrome 0xe1"},
	} {
		if uint8(tc.made) != tc.wire {
			t.Errorf("%v = %#02x on the wire, want %#02x", tc.made, uint8(tc.made), tc.wire)
		}
		if tc.made.Kind() != tc.kind || tc.made.Value() != tc.value {
			t.Errorf("%#02x: kind %d, value %d; want %d, %d", tc.wire, tc.made.Kind(), tc.made.Value(), tc.kind, tc.value)
		}
		if got := tc.made.String(); got != tc.string {
			t.Errorf("%#02x prints as %q, want %q", tc.wire, got, tc.string)
		}
	}
}

func TestRNRDelays(t *testing.T) {
	// In microseconds, from the table of the specification.
	want := [32]int{
		655360, 10, 20, 30, 40, 60, 80, 120,
		160, 240, 320, 480, 640, 960, 1280, 1920,
		2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720,
		40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
	}
	for code, us := range want {
		if got := RNRDelay(uint8(code)); got != time.Duration(us)*time.Microsecond {
			t.Errorf("RNRDelay(%d) = %v, want %dµs", code, got, us)
		}
	}
	if RNRDelay(32+12) != RNRDelay(12) {
		t.Error("RNRDelay uses more than five bits")
	}
}

func TestAckTimeouts(t *testing.T) {
	for _, tc := range []struct {
		code uint8
		want time.Duration
	}{
		{0, 0},
		{1, 8192 * time.Nanosecond},
		{14, 67_108_864 * time.Nanosecond},
		{17, 536_870_912 * time.Nanosecond},
		{31, 8_796_093_022_208 * time.Nanosecond},
		{32, 0},
	} {
		if got := AckTimeout(tc.code); got != tc.want {
			t.Errorf("AckTimeout(%d) = %v, want %v", tc.code, got, tc.want)
		}
	}
}

func TestCreditCodes(t *testing.T) {
	for _, tc := range []struct {
		code  uint8
		count uint32
	}{{0, 0}, {1, 1}, {4, 4}, {5, 6}, {6, 8}, {7, 12}, {16, 256}, {17, 384}, {29, 24576}, {30, 32768}, {32 + 5, 6}} {
		if got, ok := CreditCount(tc.code); got != tc.count || !ok {
			t.Errorf("CreditCount(%d) = %d, %v; want %d, true", tc.code, got, ok, tc.count)
		}
	}
	if n, ok := CreditCount(CreditUnlimited); n != math.MaxUint32 || ok {
		t.Errorf("CreditCount(31) = %d, %v; want the largest number and false", n, ok)
	}

	// The code of n is the last whose count does not exceed n.
	code := uint8(0)
	for n := range uint32(40000) {
		if next, ok := CreditCount(code + 1); ok && next <= n {
			code++
		}
		if got := CreditCode(n); got != code {
			t.Fatalf("CreditCode(%d) = %d, want %d", n, got, code)
		}
	}
	if code != 30 || CreditCode(math.MaxUint32) != 30 {
		t.Errorf("CreditCode ends at %d and %d, want 30: 31 means unlimited", code, CreditCode(math.MaxUint32))
	}
}
