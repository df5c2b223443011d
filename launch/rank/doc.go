// Package rank connects a process that package launch started to its launcher. It
// provides the rank number, messages to and from other ranks, barriers, and reports to
// the launcher.
//
//	conn, err := rank.Join()
//	if errors.Is(err, rank.ErrNotLaunched) { … run alone … }
//	conn.OnDump(program.Status)
//	err = program.Run(conn)
//	conn.Report(result)
//	conn.Close(err)
//
// The channel is for start-up, results and supervision, not for bulk data. The launcher
// forwards messages in order and loses none while both ranks run.
//
// All methods of a Conn may be called from several goroutines. Background goroutines
// answer heartbeats and requests of the launcher, so only a process that is stopped as
// a whole counts as hung. When the launcher dies, the process exits (see Options).
package rank
