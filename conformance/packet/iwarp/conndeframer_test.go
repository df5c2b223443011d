package iwarp

import (
	"fmt"
	"strings"
	"testing"
)

// Markers are sent to the side that requested them, CRCs in both directions if one side did.
// FPDUs of the initiator are parsed after the Reply.
func TestConnDeframerUsesNegotiatedOptions(t *testing.T) {
	first, second := Framer{CRC: true}, Framer{CRC: true, Markers: true}
	request := first.Append(Request().Markers(true).CRC(false).Append(nil), Write(1, 0, nil))
	reply := second.Append(Reply().CRC(true).Append(nil), Send(1, make([]byte, 600)))

	var d ConnDeframer
	var got []string
	feed := func(side int, b []byte) {
		for _, h := range d.Feed(side, b) {
			got = append(got, fmt.Sprint(h.Side, " ", h))
			if h.FPDU != nil && len(oddOf(*h.FPDU)) != 0 {
				t.Errorf("%v: odd: %q", h, oddOf(*h.FPDU))
			}
		}
	}
	feed(0, request)
	if n := len(d.Pending(0)); n != 20 {
		t.Errorf("%d octets wait for the Reply, want 20", n)
	}
	feed(1, reply[:30])
	feed(1, reply[30:])
	want := "0 MPA REQUEST rev 1 M; 1 MPA REPLY rev 1 C; 0 WRITE stag 0x1 to 0x0 0 B last; 1 SEND msn 1 600 B last"
	if s := strings.Join(got, "; "); s != want {
		t.Errorf("%s\nwant %s", s, want)
	}
	if a, b := len(d.Pending(0)), len(d.Pending(1)); a+b != 0 {
		t.Errorf("%d and %d octets left", a, b)
	}
}

func TestCausesHaveNames(t *testing.T) {
	for cause, want := range map[Cause]string{
		Cause(0x0000):          "rdmap/local",
		Cause(0x0007):          "rdmap/local code 0x07",
		DDPTaggedInvalidSTag:   "ddp/tagged invalid stag",
		MPACRC:                 "mpa crc",
		Cause(0x1309):          "ddp/llp code 0x09",
		Cause(0x2009):          "mpa code 0x09",
		Cause(0x3102):          "3/1/02",
		RDMAPUnexpectedOpcode:  "rdmap/operation unexpected opcode",
		RDMAPSTagNotAssociated: "rdmap/protection stag not associated with the stream",
	} {
		if s := cause.String(); s != want {
			t.Errorf("%d/%d/%02x is %q, want %q", cause.Layer(), cause.Type(), cause.Code(), s, want)
		}
	}
	for cause, want := range map[Cause]bool{Cause(0x0009): true, Cause(0x1301): true, MPACRC: true, Cause(0x2008): false, Cause(0x1105): false} {
		if cause.Listed() != want {
			t.Errorf("%v: listed %t", cause, !want)
		}
	}
}

// String formats the frame as a line of a ladder diagram.
func (h ParsedFrame) String() string {
	if h.Startup != nil {
		return h.Startup.String()
	}
	return h.FPDU.String()
}
