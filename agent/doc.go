// Package agent lets a program use the RDMA devices of another host. An agent runs
// beside the devices and posts verbs on request over a control connection; the
// program at the other end sees an ordinary [verbs.Context].
//
//	host with the devices:  agent.Serve(ctx, listener, key, host)
//	the program:            client, err := agent.Dial(ctx, "192.0.2.7:7471", key)
//	                        dev, err := client.Open("rxe0")
//
// It is a control path: every verb is a round trip, and the data of messages takes
// the devices' own network. It is no way to go fast, and it judges nothing.
//
// # Who may call
//
// Both ends have the same [Key]. From it each end derives its own Ed25519 key and the
// other's public key, and they speak TLS 1.3 with certificates of these: both know
// whom they talk to, and nobody listens in. Not a byte of the protocol is looked at
// before that. One caller at a time holds a device; when its connection ends, or is
// silent for too long, everything that it opened is closed.
//
// # What crosses the connection
//
// Each verb is a call with a number; answers come in any order, so that calls that
// wait do not hold up others. Objects are named by handles: what a program gets twice
// is the same value, and an event names the very queue that the program has. An error
// keeps its text and answers to errors.Is and errors.As as it did at the device.
//
// # Memory
//
// A program registers memory of its own, and the device has a copy. Before each call
// the agent is told what the program changed, and with each answer comes what the
// device changed, byte by byte. So after a call the program sees what the device had
// written when the call was carried out, and before a call is carried out the device
// sees what the program had written when it called. Between calls neither sees
// anything. Where both changed a byte, the device's change stays: a program that
// reuses a buffer looks at it first, by any call. A device that writes what was there
// already has changed nothing in this sense.
//
// Registered memory that lies within memory which is registered already shares its
// copy. Regions that overlap in another way see each other's changes from one call to
// the next.
//
// # Concurrency
//
// Everything may be used from several goroutines. The program's memory is read and
// written without its knowledge while a call of any goroutine is under way, as a
// device does with registered memory.
package agent
