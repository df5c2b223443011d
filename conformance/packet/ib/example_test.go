package ib_test

import (
	"fmt"
	"net/netip"

	"github.com/fabrictest/fabrictest/conformance/packet/ib"
)

// The packet conn has the fields that all packets of a connection share.
func Example() {
	conn := ib.Packet{}.Via(netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")).To(0x11)
	remote := ib.At(0x1000, 0x55, 2500)

	for _, p := range []ib.Packet{
		ib.SendOnly(100, []byte("hello")).AckReq(),
		ib.ReadRequest(101, remote.Skip(1024)),
		ib.SendOnly(104, nil).WithTVer(3).BadICRC(),
		ib.Nak(103, ib.NakSequence, 5),
	} {
		got, err := ib.Parse(p.Or(conn).Build())
		fmt.Println(got, err)
	}
	// Output:
	// SEND_ONLY psn 100 AckReq 5 B <nil>
	// READ_REQUEST psn 101 va 0x1400 rkey 0x55 len 1476 <nil>
	// SEND_ONLY psn 104 tver 3 0 B wrong ICRC <nil>
	// NAK psn 103 sequence msn 5 <nil>
}

// The same functions make expectations. Diff does not compare fields that they leave nil.
func ExamplePacket_Diff() {
	got := ib.Nak(103, ib.NakInvalidRequest, 5)

	fmt.Println(ib.Nak(103, ib.NakInvalidRequest, ib.AnyMSN).Matches(got))
	fmt.Println(ib.Op(ib.OpAcknowledge).Matches(got))
	fmt.Println(ib.Ack(104, 5).Diff(got))
	// Output:
	// true
	// true
	// PSN: want 104, got 103; syndrome: want ACK, got NAK invalid request
}
