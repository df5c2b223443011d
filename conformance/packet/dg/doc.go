// Package dg models datagram-iWARP for conformance cases: the packets of
// docs/spec/datagram-iwarp.md, section 2, around the DDP segments of package iwarp.
//
// As in package iwarp, a nil field gets its default value when building, and matches any
// value in an expected packet:
//
//	b := dg.UD(iwarp.Send(1, data)).Over(path).Append(nil)
//	b = dg.Data(epoch, 3, iwarp.Send(1, data)).AckNow().BadCRC().Append(nil)
//	d := dg.Diff(dg.Ack(epoch, 4), dg.Parse(b))
//
// Building accepts invalid values. Parsing never fails: unusual values are listed as text,
// and cases decide whether one is a violation.
//
// A packet here is the payload of a UDP datagram; addresses, ports and ECN are in the
// headers of package packet. The package does no I/O, has no clock, and shares no code
// with the emulated device.
package dg
