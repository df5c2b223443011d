// Package dg is the judge's own model of datagram-iWARP: the packets of
// docs/spec/datagram-iwarp.md, section 2, around the DDP segments of package iwarp.
//
// As there, a field that is nil has its ordinary value when a packet is built, and is
// not looked at when the packet is what a case expects:
//
//	b := dg.UD(iwarp.Send(1, data)).Over(path).Append(nil)
//	b = dg.Data(epoch, 3, iwarp.Send(1, data)).AckNow().BadCRC().Append(nil)
//	d := dg.Diff(dg.Ack(epoch, 4), dg.Parse(b))
//
// Building builds what it is told to, however wrong. Reading never fails: what is odd
// about a packet is listed in words, and whether that is a violation is for a case to
// say.
//
// A packet here is the payload of a UDP datagram; addresses, ports and ECN are in the
// headers of package packet. The package does no I/O, keeps no clock and shares
// nothing with the stack that it is used to judge. Values are plain data.
package dg
