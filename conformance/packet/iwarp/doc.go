// Package iwarp is the judge's own model of iWARP over TCP: MPA with its start-up
// frames, markers and CRCs (RFC 5044, RFC 6581), DDP (RFC 5041), RDMAP (RFC 5040)
// and its atomics and immediate data (RFC 7306).
//
// A frame is a struct of pointers. A field that is nil has its ordinary value when
// the frame is built, and is not looked at when the frame is what a case expects.
// So a case says only what it is about, and an ordinary frame is one call:
//
//	b = framer.Append(b, iwarp.Send(1, data))
//	b = framer.Append(b, iwarp.Write(stag, to, data).Last(false).BadCRC())
//	d := iwarp.Diff(iwarp.Terminate(iwarp.DDPTaggedInvalidSTag), got)
//
// Functions that make a segment (Send, Write, …) set what their arguments say and
// leave the rest nil; methods set one field more and return a copy. What belongs
// to DDP and RDMAP is a [Segment]; what belongs to MPA turns it into an [FPDU],
// hence comes last in the chain. [Segment.Strict] turns an expectation into one of
// every field.
//
// Reading never fails. What is odd about a frame is listed in words ([Got.Odd],
// [Segment.Oddities]), and what cannot be read is left nil: whether it is a
// violation is for a case to say. A [Framer] builds whatever it is told to, however
// wrong; a [Deframer] takes a stream apart by the rules, however it is cut.
//
// The package does no I/O, keeps no clock and knows no device. It is written from
// the RFCs and held against what Linux kernels send, and shares nothing with the
// stacks that it is used to judge. Values are plain data; a Framer, Deframer or
// Dialogue belongs to one goroutine.
package iwarp
