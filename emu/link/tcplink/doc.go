// Package tcplink is a link.StreamNet over Linux TCP sockets, on which a driver may
// busy-poll or sleep. softiwarp uses it. It does not buffer or copy bytes, and starts no
// goroutines.
//
// A Net belongs to the network namespace that the caller's thread was in at Open, and
// dials and listens there from any thread.
//
// With up to maxDirectStreams streams Ready reports all of them, and polling costs one
// recv per stream. With more, or while a stream waits to be connected or writable, Ready
// asks epoll. WaitReady sleeps in epoll.
//
// A Net, its streams and its listeners are meant for one goroutine at a time, except that
// any goroutine may call Close and Wake, and one may be in WaitReady while another one
// uses the net. Read, Write, Writev, Ready and WaitReady do not allocate.
package tcplink
