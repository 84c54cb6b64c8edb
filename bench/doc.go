// Command bench measures idemd beside two yardsticks, all side by side in one run on
// one machine: a gRPC server that does nothing (echo), and what an application does
// with PostgreSQL alone (pgx). What counts are ratios of medians, not the numbers.
//
// Servers are processes of their own: this program again, told by its environment which
// one to be. The program itself is the client. So the CPU time of both is told apart.
package main
