// Package ib is the judge's model of RoCEv2: the transport headers of InfiniBand in
// UDP over IPv4 and IPv6, their invariant CRC, and the messages of the communication
// manager.
//
// A [Packet] is made by a function named after what it is, changed by what its
// methods add, and sent, or held against what came:
//
//	ib.SendOnly(psn, data).AckReq()         // a packet as anyone would send it
//	ib.SendOnly(psn, data).WithTVer(3)      // an odd one
//	want := ib.Ack(psn, 1)                  // an expectation
//	if d := want.Diff(got); d != nil { … }  // PSN: want 100, got 101
//
// What is not said is nil: an ordinary value when building, anything when comparing. So
// a payload that is nil is built as none and expected as any; one that is empty is none
// in either. Acknowledgements of all kinds have none.
// Where packets go, [Packet.Or] fills in for all packets of a connection.
//
// All of it is written from the specification (IBTA volume 1, chapters 7, 9 and 12,
// annexes A17 and A19), and is tested against packets that Linux sent. It has no
// state: it does not know connections, let alone what a device should answer.
// Values are not changed by their methods; share them freely.
package ib
