// Package wire is the codec of datagram-iWARP: the packets that carry DDP segments in UDP,
// unreliable or reliable, and the header of RDMA Write-Record. docs/spec/datagram-iwarp.md
// specifies them, with the golden bytes that the tests check. dgiwarp/engine and
// dgiwarp/rd use it; emu/iwarp/wire has the DDP and RDMAP headers.
//
// Parse checks versions, kinds and lengths only. Whether a QP exists or a sequence number
// is valid is decided by the engine. Reserved bits survive a round trip, so that tests can
// set them and captures can be written again byte for byte.
//
// Results of Parse borrow its input. Nothing allocates, unless an Append outgrows its
// slice. Distinct values may be used concurrently.
package wire
