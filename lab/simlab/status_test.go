package simlab

import "testing"

// The responder of a stream refuses the first message and ends. Its note is at the
// requester before its NAK is, which takes 2 ms: the requester reports the NAK's status all
// the same.
func TestNAKCountsIfItArrivesAfterThePeersEnd(t *testing.T) {
	passes(t, `
fabric: {kind: pair, link: {latency: 2ms}}
workload: {kind: stream, op: send, messages: 20, bytes: 16KiB, mtu: [4096, 1024], timeout: 30ms}
expect: {delivered: at-most-once, errors: {host0: [remote invalid request]}}
`)
}
