// Package wire is the codec of datagram-iWARP: the packets that carry DDP
// segments in UDP datagrams, unreliably or through the reliable-datagram layer,
// and the header of RDMA Write-Record. docs/spec/datagram-iwarp.md specifies
// them; its appendix holds the golden bytes that the tests here check.
//
// It refuses to be more than that. What a packet carries is a ULPDU, whose DDP
// and RDMAP headers are those of iWARP over TCP and belong to
// emu/softiwarp/wire. Parse checks lengths, never meaning: whether a version is
// known, a QP exists or a sequence number fits is for an engine to decide.
// Reserved bits survive a round trip, so that a test can set them and a capture
// can be written again byte for byte.
//
// All values are plain and own nothing: what Parse returns borrows its input.
// Nothing allocates (unless an Append outgrows its slice), whether it succeeds or
// fails. Distinct values may be used concurrently.
package wire
