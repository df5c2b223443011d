package simlab

import "testing"

// The responder of a stream rejects the first message and ends. The requester
// learns that on the control channel 2 ms before the NAK arrives.
func TestRequesterReportsNAKReceivedAfterPeerEnded(t *testing.T) {
	passes(t, `
fabric: {kind: pair, link: {latency: 2ms}}
workload: {kind: stream, op: send, messages: 20, bytes: 16KiB, mtu: [4096, 1024], timeout: 30ms}
expect: {delivered: at-most-once, errors: {host0: [remote invalid request]}}
`)
}
