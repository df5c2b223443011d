// Package agent gives a program access to the RDMA devices of another host. An agent on
// that host executes verbs on request over a control connection; the program sees an
// ordinary [verbs.Context].
//
//	host with the devices:  err := (&agent.Server{Key: key, Host: host}).Serve(ctx, listener)
//	the program:            client, err := agent.Dial(ctx, "192.0.2.7:7471", key)
//	                        dev, err := client.Open("rxe0")
//
// It is a control path: every verb is a round trip; message data uses the devices' network.
//
// # Authentication
//
// Both ends have the same [Key]. Each end derives its Ed25519 key and the other's public
// key from it, and they use TLS 1.3 with certificates of these keys. No byte of the protocol
// is parsed before. One client at a time holds a device; when its connection ends or times
// out, the agent closes everything that it opened.
//
// # Calls
//
// Each verb is a numbered call. Replies come in any order, so a blocking call does not
// delay others. Handles identify objects: an object returned twice is the same value, and an
// event refers to the program's own queue. An error keeps its text, and errors.Is and
// errors.As give the same result as at the device.
//
// # Memory
//
// A program registers its own memory, and the device works on a copy. Each call first sends
// the bytes that the program changed, and each reply the bytes that the device changed.
// After a call the program therefore sees what the device had written when the call was
// executed, and the device sees what the program had written when it called. Between calls
// neither sees anything. If both changed a byte, the device's change wins: a program must
// make a call before it reuses a buffer. Writing the same value is no change.
//
// A region within another registered region shares its copy. Regions that overlap otherwise
// see each other's changes with the next call.
//
// # Concurrency
//
// All types are safe for concurrent use. During a call of any goroutine, the package reads
// and writes registered memory of the program, as a device does.
package agent
