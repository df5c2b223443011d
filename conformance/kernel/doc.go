// Package kernel proves a device against a peer that shares none of our code: the
// soft-RoCE or the soft-iWARP of the Linux kernel, driven by the programs that every
// user of verbs knows: ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong,
// ibv_srq_pingpong and udaddy over RoCE; rping, ucmatose, rdma_client and rdma_server
// over both.
//
// The package plays the other end of those programs, in either role, over
// verbs.Context and verbs.CM alone, and checks every byte that comes back. It
// also runs the whole matrix of programs, roles, address families and sizes
// against a guest of lab/kernel; the script run does it all.
//
// It measures nothing (an emulated guest is slow) and it is not a conformance
// suite: a kernel that completes these programs may still break the rules, and
// a deviation is not looked for here.
//
// A PingPong, Ping, Datagrams, Volley or Exchange is a description and may be used again; its Run owns
// everything it makes and has closed it when it returns. One Run uses one
// goroutine of the caller and, where it waits for a peer, one or two of its own.
package kernel
