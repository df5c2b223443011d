// Package iwarp models iWARP for conformance cases: MPA with start-up frames, markers and
// CRCs (RFC 5044, RFC 6581), DDP (RFC 5041), RDMAP (RFC 5040), and its atomics and immediate
// data (RFC 7306); and the packets of datagram-iWARP around DDP segments ([Packet]).
//
// A frame is a struct of pointers. A nil field gets its default value when building, and
// matches any value in an expected frame:
//
//	b = framer.Append(b, iwarp.Send(1, data))
//	b = framer.Append(b, iwarp.Write(stag, to, data).Last(false).BadCRC())
//	d := iwarp.Diff(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag), got)
//	b = iwarp.RDData(epoch, 3, iwarp.Send(1, data)).AckNow().BadCRC().Append(nil)
//	d = iwarp.RDAck(epoch, 4).Diff(iwarp.ParsePacket(b))
//
// Constructors (Send, Write, …) set the fields of their arguments; methods set one more
// field and return a copy.
//
// Parsing never fails. Unusual values are listed as text ([ReceivedPacket.Odd],
// [Segment.Oddities]), and missing fields are nil; cases decide whether that is a violation. A
// [Framer] builds invalid frames as well.
//
// The package does no I/O and has no clock. It is written from the RFCs, tested against
// packets of Linux, and shares no code with the emulated devices. A Framer, Deframer or
// ConnDeframer belongs to one goroutine.
package iwarp
