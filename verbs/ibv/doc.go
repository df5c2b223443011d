// Package ibv is the provider of the devices that the kernel has: verbs over libibverbs,
// and connections by librdmacm. It is how the cases that run on emulated devices run on a
// NIC, or on Linux's own soft-RoCE and soft-iWARP.
//
// It is built with the tag ibverbs, on Linux and with cgo, since it needs the two
// libraries and their headers:
//
//	apt install libibverbs-dev librdmacm-dev
//	go build -tags ibverbs ./...
//
// Without the tag the package is there and has no devices: each of its calls says how to
// build it. [Linked] tells the two apart.
//
// # What it does, and refuses to do
//
// A verb becomes the call of libibverbs that has its name, and what the device says comes
// back: an error carries the errno and the error of package verbs that means the same. The
// provider judges nothing. It refuses by itself only what C cannot survive (no object, one
// of another device, one that was closed, an operation that it has no name for, a receive
// for a queue pair that has no receive queue), and what the library has no way to say: private data of more than 255 bytes, which rdma_conn_param
// counts in eight bits, and the flush operation, which Debian 12's headers do not have.
//
// What no call of libibverbs tells is found out by trying, once for each opened device,
// with objects that are thrown away: which services it has, how much inline data a queue
// pair takes, whether completion queues can be resized and regions be zero-based.
//
// Four things are as the kernel has them, and surprise those who know only the API:
//
//   - A region at an address of the caller's choice, or a zero-based one, needs memory
//     whose offset in its page is that of the address: [BufferFor] makes such memory.
//   - Regions are locked in memory; who is not root needs a limit that allows it
//     (ulimit -l).
//   - The connection manager finds a device by IP address and takes the first that has it.
//     If that is another one than was opened, the error names both.
//   - A datagram service that is found by IP address has the key 0x01234567, always.
//     Accepting a request gives the queue pair this key.
//
// # Memory
//
// Registered memory is Go's and is pinned for as long as the region lives, so that the
// garbage collector neither moves nor frees what the device writes to.
//
// # Concurrency
//
// Everything may be called from several goroutines. Closing an object waits until no verb
// of its device is at work, and then nothing of it can be reached any more; calls that wait
// for something end with ErrClosed when what they wait on is closed. A call that waits for
// an event occupies a thread of the operating system, but for those of the connection
// manager, whose events one goroutine takes for all.
package ibv

// ProviderName is what the provider calls itself.
const ProviderName = "ibverbs"

// Provider lists and opens the devices of this machine's kernel. The zero value is ready.
type Provider struct{}

// Name returns [ProviderName].
func (Provider) Name() string { return ProviderName }
