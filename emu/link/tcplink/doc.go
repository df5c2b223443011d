// Package tcplink is a link.StreamNet over Linux TCP sockets: byte streams off a
// machine, on which a driver may spin or sleep. Its streams copy nothing: what
// is written goes from where it lies to the kernel, gathered in one call, and
// what is read goes from the kernel to where the driver wants it.
//
// It refuses to be a server: nothing is buffered, no goroutine is started, no
// byte is looked at. Nor does it enter namespaces for its caller: a Net belongs
// to the network namespace that the caller's thread was in when it called Open,
// and dials and listens there whichever thread asks it to.
//
// Whoever spins on a few streams pays one recv a stream and look. With more of
// them, or while something is awaited that a recv does not tell (a connection,
// room to write), the net asks epoll which streams to look at. Sleeping is done in
// epoll.
//
// A Net with its streams and listeners is made for one owner, its driver. A lock
// keeps descriptors open while they are in use, so that Close and Wake may be
// called by any goroutine, and WaitReady by one while another drives. Read, Write,
// Writev, Ready and WaitReady allocate nothing.
package tcplink
