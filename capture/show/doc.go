// Package show prints the packets that package capture decodes: a line per packet,
// headers, hex dumps, JSON and statistics. The command "fabrictest capture show" uses it.
//
// It escapes control characters of captured text. Memory is bounded: it buffers a page
// of lines to align columns, and counts a limited number of flows. A [Printer] must not
// be used from several goroutines.
package show
