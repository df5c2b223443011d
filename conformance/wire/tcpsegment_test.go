package wire

import (
	"bytes"
	"net/netip"
	"reflect"
	"testing"
)

var (
	tcpNear = netip.MustParseAddrPort("10.0.0.1:40000")
	tcpFar  = netip.MustParseAddrPort("10.0.0.2:7471")
)

func sampleSegments() []segment {
	return []segment{
		{src: tcpNear, dst: tcpFar, seq: 1, flags: syn, window: 65535, mss: 1460, payload: []byte{}},
		{src: tcpNear, dst: tcpFar, seq: 1<<32 - 1, ack: 7, flags: ack | psh, window: 1, payload: []byte("odd")},
		{
			src: netip.MustParseAddrPort("[fd00::1]:1"), dst: netip.MustParseAddrPort("[fd00::2]:65535"),
			seq: 5, ack: 9, flags: ack | fin, payload: []byte("even"),
		},
		{src: tcpNear, dst: tcpFar, flags: rst, payload: []byte{}},
	}
}

func TestSegmentRoundTrip(t *testing.T) {
	t.Parallel()
	for _, s := range sampleSegments() {
		got, err := parseSegment(append(s.packet(), 0, 0)) // with padding
		if err != nil || !reflect.DeepEqual(got, s) {
			t.Errorf("%+v\nparses as %+v, %v", s, got, err)
		}
	}
}

func TestParseRejectsTruncatedAndCorruptSegments(t *testing.T) {
	t.Parallel()
	whole := sampleSegments()[1].packet()
	for n := range whole {
		if _, err := parseSegment(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes parse as a segment", n, len(whole))
		}
		b := bytes.Clone(whole)
		b[n] ^= 0x10
		if n < 20 { // the IP header, which TCP does not check
			continue
		}
		if s, err := parseSegment(b); err == nil {
			t.Errorf("byte %d is corrupt, but it parses as %v", n, &s)
		}
	}
}

func TestParseMSS(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		options []byte
		want    uint16
	}{
		{[]byte{2, 4, 5, 180}, 1460},
		{[]byte{1, 1, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 2, 4, 2, 24}, 536},
		{[]byte{0, 2, 4, 5, 180}, 0},
		{[]byte{3, 0, 2, 4}, 0},
		{[]byte{3, 9, 2, 4}, 0},
		{[]byte{2}, 0},
		{nil, 0},
	} {
		if got := parseMSS(c.options); got != c.want {
			t.Errorf("%v: %d", c.options, got)
		}
	}
}

func FuzzSegment(f *testing.F) {
	for _, s := range sampleSegments() {
		f.Add(s.packet())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSegment(b)
		if err != nil {
			return
		}
		reparsed, err := parseSegment(s.packet())
		if err != nil || !reflect.DeepEqual(reparsed, s) {
			t.Fatalf("%+v\nround trip gives %+v, %v", s, reparsed, err)
		}
		_ = s.String()
	})
}
