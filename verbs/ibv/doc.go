// Package ibv is the provider of the kernel's RDMA devices: verbs over libibverbs, and
// connections over librdmacm. With it the conformance cases and programs run on a NIC, or on
// Linux's soft-RoCE and soft-iWARP. It does not check results of devices.
//
// It is built with the tag ibverbs, on Linux and with cgo, and needs the two libraries' headers:
//
//	apt install libibverbs-dev librdmacm-dev
//	go build -tags ibverbs ./...
//
// Without the tag the package has no devices, and the error of each call tells how to build
// it. [Linked] is false then.
//
// # Verbs
//
// A verb calls the function of libibverbs with its name. An error wraps the errno and the error of
// package verbs for it. The provider itself rejects only arguments with which the library would
// crash (a missing, foreign or closed object, an unknown operation, a receive for a queue pair
// without a receive queue), and arguments that the library cannot express: private data of more
// than 255 bytes, and the flush operation, which the headers of Debian 12 lack.
//
// Capabilities that no query of libibverbs reports are probed once per opened device, by
// creating objects: transport services, the limit of inline data, resizing of completion
// queues, and zero-based regions.
//
// Behaviour of the kernel that the API does not show:
//
//   - A region with a chosen address, or a zero-based one, needs memory with the same
//     offset in its page as the address: [BufferFor] returns such memory.
//   - Regions are locked in memory; without root this needs a limit (ulimit -l).
//   - The connection manager uses the first device with an IP address. If that is not the
//     opened device, the error names both.
//   - Datagram services have the Q_Key 0x01234567. Accept sets it on the queue pair.
//
// # Memory
//
// Registered memory is Go memory. It is pinned until the region is closed.
//
// # Concurrency
//
// All types are safe for concurrent use. Closing an object waits until no verb of its device
// is running. Blocking calls return ErrClosed when their object is closed. A call that waits
// for an event blocks an OS thread; one goroutine reads all events of the connection manager.
package ibv

// ProviderName is the name of the provider.
const ProviderName = "ibverbs"

// Provider lists and opens the devices of this machine's kernel. The zero value is ready.
type Provider struct{}

// Name returns [ProviderName].
func (Provider) Name() string { return ProviderName }
