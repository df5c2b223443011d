// Package interop runs every operation between two devices, for example of different vendors, and
// checks every byte: each operation that both support, requested by either side, at sizes around
// the packet payload, over IPv4 and IPv6, on queue pairs connected by ibv_modify_qp and by the
// connection manager. Both devices are used through verbs, the remote one usually through an agent.
// Package lab/interop runs it, and tests against existing programs.
//
// A case passes if both sides get every expected completion with the expected fields, and
// no other, if memory has the transferred data and is unchanged around it, and if invalid
// requests are refused. A failure does not say which device is wrong.
//
// The package measures nothing, does not know the emulator, and does not drop packets:
// the caller controls the network and sets Suite.Lossy. A Suite runs one case at a time
// and owns its objects on the devices; the caller owns the devices.
package interop
