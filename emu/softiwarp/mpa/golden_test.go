package mpa

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/fabrictest/fabrictest/emu/iwarp/wire"
	"github.com/fabrictest/fabrictest/internal/must"
)

// send returns the header of a Send, as in the vectors.
func send(msn uint32) []byte {
	h := wire.Header{Control: wire.NewControl(wire.OpSend, true), Untagged: wire.Untagged{MSN: wire.MSN(msn)}}
	return h.Append(nil)
}

// parsesAndSends checks that a receiver that requested f parses b, split anywhere, into ulpdus, and
// that a sender makes b of them.
func parsesAndSends(t *testing.T, f wire.Framing, b []byte, ulpdus ...[]byte) {
	t.Helper()
	for cut := range b {
		c := responding(t, Config{}, f, wire.Framing{CRC: f.CRC})
		es := append(give(c, b[:cut]), give(c, b[cut:])...)
		if len(es) != len(ulpdus) {
			t.Fatalf("cut at %d: %d events", cut, len(es))
		}
		for i, e := range es {
			wantULPDU(t, e, ulpdus[i])
		}
	}
	c := sending(t, Config{}, f)
	for _, u := range ulpdus {
		c.Send(u[:18], [][]byte{u[18:]})
	}
	if got := written(c); !bytes.Equal(got, b) {
		t.Errorf("sends\n%x, want\n%x", got, b)
	}
}

// goldenFirstFPDU is figure 5 of RFC 5044: vector R1.
func goldenFirstFPDU(t *testing.T) {
	b := fromHex(t, "00000000002a41430000000000000000000000010000000000000000000000000000000000000000000000000000000052239983")
	parsesAndSends(t, marked1, b, append(send(1), make([]byte, 24)...))
}

// goldenSecondFPDU is figure 6: vector R2, at offset 0x1ec of its stream.
func goldenSecondFPDU(t *testing.T) {
	want := fromHex(t, "002a4143000000000000000000000002000000000000001400000000000000000000000000000000000000000000000084925898")
	u := append(send(2), make([]byte, 24)...)
	c := sending(t, Config{}, marked1)
	c.streamPos = 0x1ec
	if b := sent(c, u[:18], u[18:]); !bytes.Equal(b, want) {
		t.Errorf("sends\n%x, want\n%x", b, want)
	}
	r := responding(t, Config{}, marked1, crcOn)
	r.deframer = wire.NewDeframerAt(marked1, 0x1ec)
	wantULPDU(t, giveOne(t, r, want), u)
}

// goldenTrailingMarker is vector D6: a marker between pad and CRC.
func goldenTrailingMarker(t *testing.T) {
	u := append(send(1), make([]byte, 488)...)
	b := stream(marked1, u)
	if len(b) != 520 || hex.EncodeToString(b[512:]) != "000001fc38cf64e8" {
		t.Fatalf("the codec makes %d octets that end in %x", len(b), b[512:])
	}
	parsesAndSends(t, marked1, b, u)
}

// goldenMarkerBetween is vector D7: a marker between two FPDUs.
func goldenMarkerBetween(t *testing.T) {
	first, second := append(send(1), make([]byte, 484)...), append(send(2), make([]byte, 24)...)
	b := stream(marked1, first, second)
	want := "a09bb55b" + "00000000002a414300000000000000000000000200000000000000000000000000000000000000000000000000000000cc08199e"
	if got := hex.EncodeToString(b[508:]); got != want {
		t.Fatalf("the codec returns\n%s, want\n%s", got, want)
	}
	parsesAndSends(t, marked1, b, first, second)
}

func TestGoldenFPDUs(t *testing.T) {
	t.Run("R1", goldenFirstFPDU)
	t.Run("R2", goldenSecondFPDU)
	t.Run("D6", goldenTrailingMarker)
	t.Run("D7", goldenMarkerBetween)
}

// TestGoldenFrames compares start-up frames with those of siw in Linux 6.12.
func TestGoldenFrames(t *testing.T) {
	const (
		req = "4d504120494420526571204672616d65"
		rep = "4d504120494420526570204672616d65"
	)
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"V1": {Config{NoCRC: true, IRD: 1, ORD: 1}, req + "1002000400010001"},
		"V7": {Config{NoCRC: true, IRD: 128, ORD: 128}, req + "1002000400800080"},
	} {
		if got := hex.EncodeToString(written(NewInitiator(0, c.cfg))); got != c.want {
			t.Errorf("%s: Request\n%s, want\n%s", name, got, c.want)
		}
	}
	for name, v := range map[string]struct {
		request   wire.Enhanced
		requested wire.StartFrame
		cfg       Config
		accept    AcceptParam
		want      string
	}{
		"V2":  {wire.Enhanced{IRD: 1, ORD: 1}, wire.StartFrame{}, Config{NoCRC: true}, AcceptParam{IRD: 1, ORD: 1}, rep + "1002000400010001"},
		"V10": {wire.Enhanced{IRD: 16, ORD: 16}, wire.StartFrame{CRC: true}, Config{NoCRC: true}, AcceptParam{IRD: 16, ORD: 128}, rep + "5002000400100010"},
		"V28": {
			wire.Enhanced{IRD: 4, ORD: 4, PeerToPeer: true, RTRWrite: true},
			wire.StartFrame{},
			Config{NoCRC: true, MaxIRD: 128},
			AcceptParam{IRD: 1, ORD: 128},
			rep + "1002000480048004",
		},
	} {
		_, r := accepts(t, v.cfg, enhance(v.requested, v.request), v.accept)
		if got := hex.EncodeToString(r.Append(nil)); got != v.want {
			t.Errorf("%s: Reply\n%s, want\n%s", name, got, v.want)
		}
	}
	t.Run("V27", func(t *testing.T) { // siw rejects markers; here the application does
		c, _ := receivesRequest(t, Config{}, enhance(wire.StartFrame{Markers: true}, wire.Enhanced{IRD: 1, ORD: 1}))
		must.Do(t, c.Reject(AcceptParam{}))
		if got := hex.EncodeToString(written(c)); got != rep+"3002000400000000" {
			t.Errorf("Reply %s", got)
		}
	})
}
