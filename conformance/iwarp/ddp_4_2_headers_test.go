package iwarp

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/fabrictest/fabrictest/conformance/packet/iwarp"
)

// The expected headers are from frames of Linux's siw.
func TestHeaderOctetsMatchSiw(t *testing.T) {
	for want, got := range map[string][]byte{
		"c140f13a5300000055c99661b010":         taggedHeader(0x40, 0xf13a5300, 0x55c99661b010),
		"414300000000000000000000000100000000": untaggedHeaderOctets(0x41, 0x43, 0, 0),
		"414100000000000000010000000100000000": untaggedHeaderOctets(0x41, 0x41, 1, 0),
	} {
		if hex.EncodeToString(got) != want {
			t.Errorf("got %x, want %s", got, want)
		}
	}
}

// Header helpers and packet/iwarp build the same octets.
func TestHeaderOctetsMatchPacketModel(t *testing.T) {
	for _, c := range []struct {
		octets []byte
		frame  iwarp.Segment
	}{
		{taggedHeader(0x42, peerSTag, peerTO), iwarp.ReadResponse(peerSTag, peerTO, nil)},
		{untaggedHeaderOctets(0x01, 0x43, 0, 32), iwarp.Send(1, nil).MO(32).Last(false)},
		{untaggedHeaderOctets(0x41, 0x4b, 3, 0), iwarp.AtomicResponse(1, 0, 0)},
	} {
		if got := c.frame.Append(nil); !bytes.HasPrefix(got, c.octets) {
			t.Errorf("%v is % x, want % x", c.frame, got, c.octets)
		}
	}
}
