// Package ib models RoCEv2 packets for conformance cases: the InfiniBand transport headers in UDP
// over IPv4 and IPv6, the invariant CRC, and CM messages.
//
// A function named after the packet makes a [Packet], methods change it, and a case sends
// it or compares a received packet with it:
//
//	ib.SendOnly(psn, data).AckReq()         // a valid packet
//	ib.SendOnly(psn, data).WithTVer(3)      // an invalid one
//	want := ib.Ack(psn, 1)                  // an expected packet
//	if d := want.Diff(got); d != nil { … }  // PSN: want 100, got 101
//
// A nil field has its default value when building, and matches any value when comparing.
// A nil payload is therefore built as none and matches any; an empty one is none in both
// cases. Acknowledgements have an empty payload. [Packet.Or] adds the fields that all
// packets of a connection share.
//
// The package is written from the specification (IBTA volume 1, chapters 7, 9 and 12,
// annexes A17 and A19), and tested against packets that Linux sent. It has no state, and
// does not know what a device should respond. Methods do not change their receivers.
package ib
