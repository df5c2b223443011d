// Package sim is a deterministic discrete-event simulator: time is virtual,
// events run in order of (time, sequence), and the programs of the ranks are
// coroutines of which exactly one runs at a time. Two runs with the same seed
// write the same trace, byte for byte, on any machine.
//
// A world holds three kinds of objects:
//
//   - Handlers, which an event calls at its time ([World.At], [Timer]). NICs,
//     links and schedules are handlers. They never block.
//   - Programs ([World.Go]), which block: a blocking call parks the coroutine
//     and the world chooses the next program.
//   - Networks ([Net]): ports joined by a cable, a switch, or several switches
//     with trunks between them. They carry datagrams and byte streams, with the
//     impairments of package impair.
//
// A running world can be changed: links go down and up, networks partition and
// heal, impairments and rates are replaced, programs are paused or killed.
//
// All events of an instant run before its programs. Programs that become
// runnable at the same time compete, and [World.Choose] decides. Every other
// random decision (loss, jitter, segment lengths) comes from [World.Rand],
// which has one independent random stream per name: adding a component does not
// change the decisions of the others.
//
// The package implements no protocol, reads no clock, opens no socket and
// starts no thread. A world belongs to the goroutine that calls Run; nothing
// here is safe for concurrent use. A goroutine that a program starts panics
// with a [*WrongGoroutineError] when it calls into the world.
package sim
