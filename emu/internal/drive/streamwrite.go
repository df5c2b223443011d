package drive

import "github.com/fabrictest/fabrictest/emu/mono"

// Flush writes what the engine has to write. It reports false if there was more
// than one stream may have at a time; what a full stream did not take is written
// when TakeIn has learned that there is room.
func (s *Streams) Flush(now mono.Time) (all bool) {
	// Those that did not get to write all come first: their turn is longest ago.
	for i, k := 0, len(s.retry); i < k; i++ {
		st := s.retry[i]
		if st.retry = false; !st.gone {
			s.write(now, st)
		}
		s.retry[i] = nil
	}
	s.retry = dropNil(s.retry)
	for {
		conn, ok := s.engine.NextOutput()
		if !ok {
			break
		}
		if st := s.find(conn); st != nil && !st.retry {
			s.write(now, st)
		}
	}
	return len(s.retry) == 0
}

// write moves what one conn has to write to its stream.
func (s *Streams) write(now mono.Time, st *stream) {
	for written := 0; ; {
		bufs, then := st.conn.Output(s.vecs)
		if then == StreamAbort {
			s.abort(now, st)
			return
		}
		// What cannot be written now is asked for again when it can be.
		if !st.connected || st.blocked || st.writeEnded || st.broken {
			return
		}
		if len(bufs) == 0 {
			s.end(now, st, then)
			return
		}
		total := 0
		for _, b := range bufs {
			total += len(b)
		}
		// A batch as large as fits ends in the midst of a run: the segment that its
		// last bytes begin is filled by the next.
		st.corked = len(bufs) == cap(s.vecs)
		n, err := st.link.Writev(now, bufs, st.corked)
		if n > 0 {
			st.conn.Sent(now, n)
		}
		if err != nil {
			// What arrived before the stream broke comes before the news of it.
			st.broken = true
			s.readAgain(st)
			return
		}
		if n < total {
			st.blocked = true
			return
		}
		if written += n; written >= writeBytes {
			s.again(st)
			return
		}
	}
}

// end does what comes behind the last byte.
func (s *Streams) end(now mono.Time, st *stream, then StreamEnd) {
	switch {
	case then == StreamClose:
		st.writeEnded = true
		if err := st.link.CloseWrite(now); err != nil {
			st.broken = true
			s.readAgain(st)
			return
		}
		if st.readEnded {
			s.forget(st)
		}
	case st.corked:
		st.corked = false
		if _, err := st.link.Writev(now, nil, false); err != nil {
			st.broken = true
			s.readAgain(st)
		}
	}
}

func (s *Streams) abort(now mono.Time, st *stream) {
	_ = st.link.Abort(now) // it may have broken meanwhile
	s.forget(st)
}
