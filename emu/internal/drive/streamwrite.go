package drive

import "github.com/fabrictest/fabrictest/emu/mono"

// Flush writes the engine's output to the streams. It reports false if a stream has more to write
// than its share of one call (writeBytes): call Flush again. If a stream is full, its output waits
// until Receive finds that the stream has room.
func (s *Streams) Flush(now mono.Time) (allWritten bool) {
	// Streams that did not write all the last time come first: they waited longest.
	handleQueue(&s.writeQueue, func(st *stream) {
		if st.writeQueued = false; !st.removed {
			s.write(now, st)
		}
	})
	for {
		conn, ok := s.engine.NextOutput()
		if !ok {
			break
		}
		if st := s.find(conn); st != nil && !st.writeQueued {
			s.write(now, st)
		}
	}
	return len(s.writeQueue) == 0
}

// write writes the output of one conn until there is no more, the link is full, or writeBytes are
// written (it then queues the stream). It closes or aborts the stream if the conn requests it.
func (s *Streams) write(now mono.Time, st *stream) {
	for written := 0; ; {
		bufs, end := st.conn.Output(s.vecs)
		if end == StreamAbort {
			_ = st.link.Abort(now) // the stream may have broken before
			s.remove(st)
			return
		}
		if !st.connected || st.blocked || st.writeClosed || st.writeFailed {
			return
		}
		if len(bufs) == 0 {
			s.finishWrite(now, st, end)
			return
		}
		total := 0
		for _, b := range bufs {
			total += len(b)
		}
		// If bufs is full, more output follows, and Writev may hold back the last segment.
		st.corked = len(bufs) == cap(s.vecs)
		n, err := st.link.Writev(now, bufs, st.corked)
		if n > 0 {
			st.conn.Sent(now, n, st.link.AcceptedAt())
		}
		if err != nil {
			s.failWrite(st)
			return
		}
		if n < total {
			st.blocked = true
			return
		}
		if written += n; written >= writeBytes {
			s.queueWrite(st)
			return
		}
	}
}

// finishWrite is called when all output is written. It closes the stream for writing if end is
// StreamClose, or else sends a partial segment that Writev has held back (corked).
func (s *Streams) finishWrite(now mono.Time, st *stream, end StreamEnd) {
	switch {
	case end == StreamClose:
		st.writeClosed = true
		if err := st.link.CloseWrite(now); err != nil {
			s.failWrite(st)
			return
		}
		if st.readClosed {
			s.remove(st)
		}
	case st.corked:
		st.corked = false
		if _, err := st.link.Writev(now, nil, false); err != nil {
			s.failWrite(st)
		}
	}
}

// failWrite notes a failed write. A read reports the error to the conn, after the
// bytes that arrived before it.
func (s *Streams) failWrite(st *stream) {
	st.writeFailed = true
	s.queueRead(st)
}
