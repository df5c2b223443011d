// Package carrier moves the words and the data of one rank to and from all others,
// over whatever ways there are to each of them.
//
// A peer is reached by datagrams, which need no connection; by a connection, made
// when it is first needed and given back when it is idle; by a ring in the peer's
// memory, for peers that one talks with much; or through memory that both have in
// common. Which of these there are, and when, is a Design. Whatever the way, words
// arrive once and in order: each packet has a number, and a packet that comes before
// its turn is kept until it is its turn.
//
// Data is moved by the NICs where the way has RDMA, and in packets where it has not.
//
// A Carrier belongs to whoever holds its rank's lock. It calls its Upper from within
// its methods, and is called back from there. Only Wait may be called without the
// lock: it is the one place where a rank stands still.
package carrier
