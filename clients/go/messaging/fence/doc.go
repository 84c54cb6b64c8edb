// Package fence lets the effect of an operation commit once, whatever became of the
// attempts: a row in the effect's own transaction says which one has committed. It is what
// idem.Transactional needs.
//
// It may import idem, gen, pgx, protobuf, and this module's internal packages.
package fence
